-- lua/mytensor/utils/init.lua: mt.utils, what training scripts show and ask.

return {
  options = require("mytensor.utils.options").options,
  parse_options = require("mytensor.utils.options").parse_options,
  Progress = require "mytensor.utils.progress",
  draw_images = require "mytensor.utils.images",
  confusion = require("mytensor.utils.confusion").confusion,
  confusion_text = require("mytensor.utils.confusion").confusion_text,
}
