-- spec/porting_spec.lua: every call of lua/PORTING.md runs.

local mt = require "mytensor"
local porting = require "spec.support.porting"

local dtype, device = mt.get_default_dtype(), mt.get_default_device()
after_each(function()
  mt.set_default_dtype(dtype)
  mt.set_default_device(device)
  mt.set_printoptions { precision = 4 }
end)

local function run(code)
  local variables = porting.variables(mt)
  local fn = assert(load("return " .. code, "=" .. code, "t", variables))
  local value = fn()
  os.remove(variables.path)
  return value
end

for _, section in ipairs(porting.sections) do
  describe(section[1], function()
    for k = 2, #section do
      local row = section[k]
      local code = row[4]
      it(code .. " runs", function()
        assert.is_true(#row == 4 or #row == 5)
        for i = 1, #row do assert.is_string(row[i]) end
        assert.is_true(row[1] ~= "" or row[2] ~= "" or row[3] ~= "")
        -- a bare name gives what it names: nil if there is nothing
        local value = run(code)
        if code:find "^[%w_.]+$" and code ~= "leaf.grad" then
          assert.is_not_nil(value, code .. " is nil")
        end
      end)
    end
  end)
end

describe("the page", function()
  it("names nothing twice", function()
    local seen = {}
    for _, section in ipairs(porting.sections) do
      for k = 2, #section do
        for name in section[k][1]:gmatch "torch%.[^,]+" do
          assert.is_nil(seen[name], name .. " stands twice")
          seen[name] = true
        end
      end
    end
  end)
end)
