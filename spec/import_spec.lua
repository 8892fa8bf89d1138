-- spec/import_spec.lua: the module loads, once, wherever it is required, and leaves
-- nothing behind.

local mt = require "mytensor"
local shell = require "spec.support.shell"

local function lua(code, opts)
  local r = shell.lua_run(code, opts)
  if r.code ~= 0 then
    error(("exit status %s, signal %s: %s"):format(tostring(r.code), tostring(r.signal),
      r.err), 0)
  end
  return r.out
end

describe("require 'mytensor'", function()
  it("gives the same table each time", function()
    assert.is_true(rawequal(mt, require "mytensor"))
  end)

  it("gives the same module after package.loaded was cleared", function()
    local x = mt.ones(2)
    package.loaded["mytensor"] = nil
    local again = require "mytensor"
    package.loaded["mytensor"] = mt
    assert.is_true(rawequal(mt, again))
    assert.is_true(again.ones(2):add(x):equal(mt.full({ 2 }, 2)))
  end)

  it("works first inside a coroutine, which may then die", function()
    assert.equal("6.0\n", lua [[
      local co = coroutine.wrap(function() return require "mytensor" end)
      local mt = co()
      co = nil
      collectgarbage()
      collectgarbage()
      print(mt.tensor({1, 2, 3}):sum():item())]])
  end)

  it("leaves no global", function()
    assert.equal("", lua [[
      local before = {}
      for k in pairs(_G) do before[k] = true end
      local mt = require "mytensor"
      local x = mt.randn(3, 3, {requires_grad = true})
      x:matmul(x):sum():backward()
      local _ = mt.nn.Linear, mt.optim, mt.data
      for k in pairs(_G) do if not before[k] then io.write(k, "\n") end end]])
  end)

  it("reads no Lua file of the folder where it runs", function()
    assert.equal("ok", lua([[
      require("lfs").chdir("/")
      local mt = require "mytensor"
      local _ = mt.nn.Linear(2, 3), mt.optim.SGD
      io.write "ok"]]))
  end)

  it("takes the Lua files from MYTENSOR_LUA if that is set", function()
    assert.equal("ok", lua([[
      local mt = require "mytensor"
      local _ = mt.nn.Linear(2, 3)
      io.write "ok"]], { env = "MYTENSOR_LUA=lua" }))
    local r = shell.lua_run('local mt = require "mytensor"; print(mt.nn.Linear)',
      { env = "MYTENSOR_LUA=/nowhere" })
    assert.not_equal(0, r.code)
    assert.truthy(r.err:find("/nowhere", 1, true), r.err)
  end)

  it("closes a state that still holds tensors and graphs", function()
    assert.equal("ok", lua [[
      local mt = require "mytensor"
      x = mt.randn(100, {requires_grad = true})
      y = (x * x):exp():sum()
      y:backward(nil, {retain_graph = true})
      setmetatable({}, {__gc = function() y = x end})
      io.write "ok"
      os.exit(0, true)]])
  end)

  it("finds a metatable of its own only", function()
    assert.equal("nil\n", lua [[
      require "mytensor"
      print(getmetatable(io.stdout).numel)]])
  end)

  it("has its version, and tells what it found", function()
    assert.truthy(mt._VERSION:find "^mytensor %d+%.%d+")
    local info = mt.info()
    assert.is_table(info)
    local text = {}
    for k in pairs(info) do text[#text + 1] = k end
    assert.is_true(#text >= 3)
  end)
end)

describe("the module file", function()
  local so = shell.build .. "/mytensor.so"

  local function need_module()
    if not shell.exists(so) then pending(so .. " is not built") end
  end

  it("exports nothing but luaopen_mytensor*", function()
    need_module()
    local r = shell.run("nm -D --defined-only " .. shell.quote(so))
    assert.equal(0, r.code)
    local names = {}
    for name in r.out:gmatch "%x+ %a ([^\n]+)" do names[#names + 1] = name end
    assert.is_true(#names > 0)
    for _, name in ipairs(names) do
      assert.truthy(name:find "^luaopen_mytensor", name)
    end
  end)

  it("does not link liblua, nor the big libraries", function()
    need_module()
    local r = shell.run("readelf -d " .. shell.quote(so))
    assert.equal(0, r.code)
    for library in r.out:gmatch "NEEDED[^\n]*%[([^%]]+)%]" do
      for _, bad in ipairs { "liblua", "openblas", "dnnl", "libedit", "readline",
        "cuda" } do
        assert.is_nil(library:find(bad, 1, true), library)
      end
    end
  end)

  it("and the host share one runtime in one state", function()
    need_module()
    if not shell.is_host then pending "needs the host" end
    local path = require "lfs".currentdir() .. "/" .. so
    assert.equal("true\t3.0\n", lua(([[
      local mt = require "mytensor"
      local open = assert(package.loadlib(%q, "luaopen_mytensor"))
      local other = open("mytensor")
      print(rawequal(mt, other), mt.tensor{1, 2}:sum():item())]]):format(path)))
  end)

  it("says which Lua it needs to another version", function()
    need_module()
    local found
    for _, name in ipairs { "lua5.3", "lua5.1", "luajit" } do
      if shell.run("command -v " .. name).code == 0 then found = found or name end
    end
    if not found then pending "no other Lua is installed" end
    local r = shell.run(([[LUA_CPATH=%s %s -e 'require "mytensor"']]):format(
      shell.quote(shell.build .. "/?.so"), found))
    assert.equal(1, r.code)
    assert.truthy(r.err:find("5.4", 1, true), r.err)
  end)
end)
