-- spec/unload_spec.lua: closing a state while threads of the module are alive.

local shell = require "spec.support.shell"

describe("the module in stock Lua", function()
  it("stays mapped when its state closes, for the threads that still run", function()
    local module = shell.build .. "/mytensor.so"
    if os.execute "lua5.4 -v >/dev/null 2>&1" ~= true or not shell.exists(module) then
      pending "no lua5.4 or no module"
      return
    end
    local code = [[
      local mt = require "mytensor"
      local x, w = mt.ones(64, 1, 28, 28), mt.ones(16, 1, 5, 5)
      for _ = 1, 5 do x:conv2d(w):relu():max_pool2d(2) end]]
    -- Without care one run in six crashes.
    for _ = 1, 20 do
      local run = shell.run(("LUA_CPATH=%s lua5.4 -e %s"):format(
        shell.quote(shell.build .. "/?.so"), shell.quote(code)))
      assert.equal(0, run.code, run.err)
    end
  end)
end)
