-- spec/extension_spec.lua: mytensor.h, as a C module uses it that links to nothing.

local mt = require "mytensor"
local shell = require "spec.support.shell"

local function collect()
  collectgarbage()
  collectgarbage()
end

-- The module's file.
local function build()
  if shell.run("command -v gcc").code ~= 0 then pending "no gcc" end
  local file = os.tmpname()
  local r = shell.run("gcc -Wall -Wextra -Werror -shared -fPIC -Iruntime "
    .. "-isystem " .. mt.extension.include() .. " spec/support/extension.c -o " .. file)
  assert.equal(0, r.code, r.err)
  return file
end

local loaded
local function extension()
  if loaded then return loaded end
  local file = build()
  loaded = assert(package.loadlib(file, "luaopen_extension"))()
  os.remove(file)
  return loaded
end

describe("a C module", function()
  it("reads and writes the elements of a tensor", function()
    local x = mt.arange(6, { dtype = "float64" }):view(2, 3)
    assert.is_true(rawequal(x, extension().twice(x)))
    assert.same({ { 0, 2, 4 }, { 6, 8, 10 } }, x:totable())
    assert.same({ { 0, 12 }, { 4, 16 }, { 8, 20 } },
      extension().twice(x:transpose(1, 2)):totable())
    assert.same({ 2, 4 }, extension().twice(mt.tensor({ 1, 2 }, { dtype = "int8" }))
      :totable())
  end)

  it("tells autograd that it wrote", function()
    local x = mt.ones({ 2 }, { dtype = "float64", requires_grad = true })
    local y = x * 1
    local z = y * y
    extension().twice(y)
    assert.is_false((pcall(function() z:sum():backward() end)))
  end)

  it("lends its memory, and gets it back when no view uses it", function()
    collect()
    local before = extension().released()
    local x = extension().blob(2, 3)
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, x:totable())
    local row = x[2]
    x:free()
    assert.equal(before, extension().released())
    assert.same({ 3, 4, 5 }, row:totable())
    row:free()
    assert.equal(before + 1, extension().released())
    extension().blob(3, 2)
    collect()
    assert.equal(before + 2, extension().released())
  end)

  it("gets it back, too, when no tensor comes about", function()
    local before = extension().released()
    assert.is_false((pcall(extension().blob, -1, 3)))
    assert.is_false((pcall(extension().blob, 2, 3, 99)))
    assert.equal(before + 2, extension().released())
  end)

  it("makes tensors", function()
    assert.same({ false, false }, extension().zeros(2):totable())
    for _ = 1, 9 do mt.ones({ 100 }, { dtype = "bool" }):free() end -- to be used again
    assert.equal(0, extension().zeros(100):long():sum():item())
    assert.is_false((pcall(extension().zeros, -1)))
  end)

  it("gets errors for what is no tensor", function()
    local freed = mt.ones(1)
    freed:free()
    assert.is_true(extension().is_tensor(mt.ones(1)))
    for _, value in ipairs { 1, "x", {}, freed, io.stdout } do
      assert.is_false(extension().is_tensor(value))
      local ok, err = pcall(extension().twice, value)
      assert.is_false(ok)
      assert.truthy(err:find "tensor", err)
    end
  end)

  it("is caught where it writes beyond a block, with MYTENSOR_GUARD=1", function()
    local file = build()
    local r = shell.lua_run(([[
      local mt = require "mytensor"
      local extension = package.loadlib(%q, "luaopen_extension")()
      local x, y = mt.zeros(3):relu(), mt.zeros(3):exp()
      extension.spoil(x, -2)
      extension.spoil(x, 12)
      extension.spoil(x, 13)
      extension.spoil(y, 11)
      x:free()
      y:free()
      print(mt.memory_stats().overruns)
    ]]):format(file), { env = "MYTENSOR_GUARD=1" })
    local made = shell.lua_run(([[
      local mt = require "mytensor"
      local extension = package.loadlib(%q, "luaopen_extension")()
      local y = mt.zeros(3):exp()
      local x = mt.full({ 3 }, 2)
      extension.spoil(x, 12)
      x:free()
    ]]):format(file), { env = "MYTENSOR_GUARD=1" })
    os.remove(file)
    assert.truthy(made.err:find("made for full, was overwritten", 1, true), made.err)
    assert.equal("1\n", r.out)
    assert.equal("mytensor: guard: 1 byte before a block of 12 bytes on cpu, made for "
      .. "relu, was overwritten: offsets -2 to -2\n"
      .. "mytensor: guard: 2 bytes behind a block of 12 bytes on cpu, made for relu, "
      .. "were overwritten: offsets 12 to 13\n", r.err)
  end)
end)
