-- lua/mytensor/utils/init.lua: mt.utils, what training scripts show and ask.

return {
  options = require("mytensor.utils.options").options,
  parse_options = require("mytensor.utils.options").parse,
  Progress = require "mytensor.utils.progress",
  draw_images = require "mytensor.utils.images",
  confusion = require("mytensor.utils.confusion").count,
  confusion_text = require("mytensor.utils.confusion").text,
}
