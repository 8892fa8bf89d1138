-- lua/mytensor/utils/confusion.lua: which classes are taken for which.

local mt = require "mytensor"
local check = require "mytensor.check"

local confusion = {}

--- Count the guesses by class.
--- @param labels mytensor.Tensor (N), the truth, 1..classes
--- @param guesses mytensor.Tensor (N), 1..classes
--- @param classes integer
--- @return mytensor.Tensor (classes, classes) int64: how often i was taken for j
function confusion.confusion(labels, guesses, classes)
  check.type(1, "confusion", labels, "tensor")
  check.type(2, "confusion", guesses, "tensor")
  classes = check.integer(3, "confusion", classes, "number of classes", 1)
  local cell = (labels:to("int64") - 1) * classes + guesses:to("int64")
  local zeros = mt.zeros({ classes * classes }, { dtype = "int64",
                                                  device = labels:device() })
  return zeros:scatter_add(1, cell, mt.ones_like(cell)):reshape(classes, classes)
end

--- The matrix as text: a line a class of the truth, with its share of right guesses.
--- @param counts mytensor.Tensor as `confusion` gives it
--- @param names string[] of the classes
--- @return string
function confusion.confusion_text(counts, names)
  check.type(1, "confusion_text", counts, "tensor")
  check.type(2, "confusion_text", names, "table")
  local rows, longest = counts:totable(), 0
  for _, name in ipairs(names) do longest = math.max(longest, #name) end
  local head = { (" "):rep(longest), "  right " }
  for _, name in ipairs(names) do head[#head + 1] = ("%5s"):format(name:sub(1, 4)) end
  local lines = { table.concat(head) }
  for i, row in ipairs(rows) do
    local sum, cells = 0, {}
    for j, count in ipairs(row) do
      sum = sum + count
      cells[j] = count == 0 and "    ." or ("%5d"):format(count)
    end
    lines[#lines + 1] = ("%-" .. longest .. "s %5.1f%% %s"):format(
      names[i] or "", sum > 0 and 100 * row[i] / sum or 0, table.concat(cells))
  end
  return table.concat(lines, "\n")
end

return confusion
