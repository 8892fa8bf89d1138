-- spec/support/reference.lua: reads the data that generate.py wrote.

local reference = {}

local function path(op) return "spec/reference/" .. op .. ".lua" end

function reference.exists(op)
  local f = io.open(path(op), "r")
  if f then f:close() end
  return f ~= nil
end

--- The cases of an op; fields as in refdata.py.
function reference.load(op)
  local cases = assert(loadfile(path(op)))()
  for _, case in ipairs(cases) do
    case.attrs = case.attrs or {}
    for _, input in ipairs(case.inputs) do
      if type(input) == "table" then
        local entry = input.list and input.list[1] or input
        if entry.dtype == nil then case.float = true end
      end
    end
  end
  return cases
end

--- Names of all ops that have data.
function reference.names()
  local names = {}
  for name in require "lfs".dir "spec/reference" do
    names[#names + 1] = name:match "^(.*)%.lua$"
  end
  table.sort(names)
  return names
end

return reference
