-- lua/mytensor/utils/images.lua: grey images as text.

local mt = require "mytensor"
local check = require "mytensor.check"
local terminal = require "mytensor.utils.terminal"

local ramp = " .:-=+*#%@" -- from black to white on a dark background

-- The images as rows of numbers: list[i][y][x], from (N, 1, H, W) or (N, H, W).
local function pixels(images)
  if images:dim() == 4 then images = images:select(2, 1) end
  return images:to("float32"):totable()
end

-- The mean of an image's rectangle; the bounds are fractions of pixels.
local function mean(image, top, bottom, left, right)
  local sum, area = 0, 0
  for y = math.floor(top), math.ceil(bottom) - 1 do
    local h = math.min(bottom, y + 1) - math.max(top, y)
    for x = math.floor(left), math.ceil(right) - 1 do
      local a = h * (math.min(right, x + 1) - math.max(left, x))
      sum, area = sum + a * image[y + 1][x + 1], area + a
    end
  end
  return area > 0 and sum / area or 0
end

-- The image in another size, by the means of the areas.
local function resample(image, height, width)
  local h, w, result = #image, #image[1], {}
  for y = 1, height do
    result[y] = {}
    for x = 1, width do
      result[y][x] = mean(image, (y - 1) * h / height, y * h / height,
                          (x - 1) * w / width, x * w / width)
    end
  end
  return result
end

-- 0..1 -> a grey of the 256-colour palette: black, 232..255, white.
local function grey(v)
  local level = math.floor(math.max(0, math.min(v, 1)) * 25 + 0.5)
  if level == 0 then return 16 elseif level == 25 then return 231 end
  return 231 + level
end

-- One line of text shows two rows of pixels: above, the colour of the upper half block,
-- below, the colour behind it.
local function colour_line(above, below)
  local cells = {}
  for x = 1, #above do
    cells[x] = ("\27[38;5;%d;48;5;%dm▀"):format(grey(above[x]), grey(below[x]))
  end
  return table.concat(cells) .. "\27[0m"
end

local function ascii_line(above, below)
  local cells = {}
  for x = 1, #above do
    local v = math.max(0, math.min((above[x] + below[x]) / 2, 1))
    local i = math.floor(v * (#ramp - 1) + 0.5) + 1
    cells[x] = ramp:sub(i, i)
  end
  return table.concat(cells)
end

-- The image as lines of text, `width` characters each.
local function draw(image, width, colour)
  local height = math.max(1, math.floor(#image * width / #image[1] + 0.5))
  height = height + height % 2
  if height ~= #image or width ~= #image[1] then
    image = resample(image, height, width)
  end
  local lines = {}
  for y = 1, height, 2 do
    lines[#lines + 1] = (colour and colour_line or ascii_line)(image[y], image[y + 1])
  end
  return lines
end

local function padded(text, width)
  local length = utf8.len(text) or #text
  if length > width then return text:sub(1, (utf8.offset(text, width + 1) or 0) - 1) end
  return text .. (" "):rep(width - length)
end

--- Draw grey images side by side: by half blocks in 256 colours on a terminal with
--- UTF-8, else by characters that grow darker.
--- @param images mytensor.Tensor (N, 1, H, W) or (N, H, W), 0 black .. 1 white
--- @param options? table captions (lines of text for each image: {{"a", "b"}, ...}),
---   per_row = 4, columns (of the terminal, default $COLUMNS or 80), colour
--- @return string lines
local function draw_images(images, options)
  check.type(1, "draw_images", images, "tensor")
  local n = images:dim()
  if n ~= 3 and not (n == 4 and images:size(2) == 1) then
    check.fail(1, "draw_images", "images (N, 1, H, W) or (N, H, W) expected, got %s",
               check.shape_text(images:shape()))
  elseif images:size(n) == 0 or images:size(n - 1) == 0 then
    check.fail(1, "draw_images", "images without pixels: %s",
               check.shape_text(images:shape()))
  end
  options = check.options(2, "draw_images", options, {
    captions = {}, per_row = 4, columns = terminal.columns(),
    colour = terminal.interactive() and terminal.utf8(),
  })
  local per_row = check.integer(2, "draw_images", options.per_row, "per_row", 1)
  local gap = 2
  local list = mt.no_grad(pixels, images)
  local width = (options.columns - gap * (per_row - 1)) // per_row
  width = math.max(1, math.min(width, images:size(n)))
  local lines = {}
  for first = 1, #list, per_row do
    local last = math.min(first + per_row - 1, #list)
    local columns, captions, caption_count = {}, {}, 0
    for i = first, last do
      columns[#columns + 1] = draw(list[i], width, options.colour)
      captions[#captions + 1] = options.captions[i] or {}
      caption_count = math.max(caption_count, #captions[#captions])
    end
    for y = 1, #columns[1] do
      local row = {}
      for k, column in ipairs(columns) do row[k] = column[y] end
      lines[#lines + 1] = table.concat(row, (" "):rep(gap))
    end
    for c = 1, caption_count do
      local row = {}
      for k in ipairs(columns) do row[k] = padded(captions[k][c] or "", width) end
      lines[#lines + 1] = table.concat(row, (" "):rep(gap)):gsub("%s+$", "")
    end
    lines[#lines + 1] = ""
  end
  return table.concat(lines, "\n")
end

return draw_images
