-- lua/mytensor/utils/progress.lua: a progress bar.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local terminal = require "mytensor.utils.terminal"

--- A line that tells how far a loop is, how fast, and how long it still takes:
---
---     local bar = mt.utils.Progress { total = #train, unit = "images" }
---     for _, images, labels in loader:iter() do
---       ...
---       if bar:advance(images:size(1)) then bar:show("loss " .. loss:item()) end
---     end
---     bar:finish()
---
--- On a terminal the line is redrawn ten times a second; elsewhere a line is printed
--- after each quarter.
--- @class mytensor.utils.Progress
local Progress = class "Progress"

local width = 20 -- characters of the bar

--- @param options table total (how many there are), unit = "steps", label = "";
---   for tests: interactive, utf8, clock (a function: seconds), write (a function)
function Progress:init(options)
  options = check.options(1, "Progress", options, {
    total = check.none, unit = "steps", label = "", clock = mt._clock,
    interactive = terminal.interactive(), utf8 = terminal.utf8(),
    write = function(text)
      io.stdout:write(text)
      io.stdout:flush()
    end,
  })
  self.total = check.integer(1, "Progress", options.total, "total", 0)
  self.unit, self.label = options.unit, options.label
  self.interactive, self.utf8 = options.interactive, options.utf8
  self.clock, self.write = options.clock, options.write
  self.done, self.text = 0, ""
  self.start = self.clock()
  self.due = self.start -- when to draw next, seconds
  self.mark = self.total / 4 -- what to print next, elsewhere
end

--- Count `n` more.
--- @param n? integer default 1
--- @return boolean whether it's time to call `show`
function Progress:advance(n)
  self.done = self.done + (n or 1)
  if self.interactive then return self.clock() >= self.due end
  return self.done >= self.mark and self.done < self.total
end

local function duration(seconds)
  seconds = math.floor(seconds + 0.5)
  if seconds < 3600 then return ("%d:%02d"):format(seconds // 60, seconds % 60) end
  return ("%d:%02d:%02d"):format(seconds // 3600, seconds // 60 % 60, seconds % 60)
end

-- 12345 -> "12,345"
local function grouped(n)
  local text = ("%.0f"):format(n)
  return (text:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local function line(self)
  local elapsed = self.clock() - self.start
  local share = self.total > 0 and math.min(self.done / self.total, 1) or 1
  local speed = elapsed > 0 and self.done / elapsed or 0
  local parts = { self.label }
  if self.interactive then
    local full = math.floor(share * width + 0.5)
    local on, off = "#", "."
    if self.utf8 then on, off = "█", "░" end
    parts[#parts + 1] = on:rep(full) .. off:rep(width - full)
  end
  parts[#parts + 1] = ("%3.0f%%"):format(share * 100)
  parts[#parts + 1] = ("%s %s/s"):format(grouped(speed), self.unit)
  if self.text ~= "" then parts[#parts + 1] = self.text end
  if self.finished then
    parts[#parts + 1] = ("in %.1f s"):format(elapsed)
  elseif speed > 0 then
    parts[#parts + 1] = duration((self.total - self.done) / speed) .. " left"
  end
  return table.concat(parts, "  ")
end

--- Draw the line.
--- @param text? string stands in the line, now and later
function Progress:show(text)
  self.text = text or self.text
  if self.interactive then
    self.write("\r" .. line(self) .. "\27[K")
    self.due = self.clock() + 0.1
  else
    self.write(line(self) .. "\n")
    while self.mark <= self.done do self.mark = self.mark + self.total / 4 end
  end
end

--- Draw the last line, with the time it took.
--- @param text? string
function Progress:finish(text)
  self.finished = true
  self.text = text or self.text
  if self.interactive then
    self.write("\r" .. line(self) .. "\27[K\n")
  else
    self.write(line(self) .. "\n")
  end
end

return Progress
