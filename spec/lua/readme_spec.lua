-- spec/lua/readme_spec.lua: what README.md and CONTRIBUTING.md say is so.

local devices = require "spec.support.devices"
local mt = require "mytensor"
local reader = require "mytensor.kernel"
local shell = require "spec.support.shell"

if not shell.exists "README.md" then return end -- a bundle

local text = shell.read "README.md"
local blocks = {} -- of Lua
for block in text:gmatch "```lua\n(.-)```" do blocks[#blocks + 1] = block end

local function numbers(s)
  local list = {}
  for x in s:gmatch "%d%.%d+e[+-]%d+" do list[#list + 1] = tonumber(x) end
  return list
end

describe("README.md", function()
  it("shows what its first script prints", function()
    local shown = numbers(text:match "prints\n\n```\n(.-)```")
    local r = shell.lua_run(blocks[1])
    assert.equal(0, r.code, r.err)
    local printed = numbers(r.out)
    assert.equal(4, #shown)
    assert.equal(4, #printed)
    for i = 1, 4 do assert.is_true(math.abs(shown[i] - printed[i]) < 1e-4, r.out) end
    assert.equal(text:match "(<Tensor.-)\n", r.out:match "(<Tensor.-)\n")
  end)

  it("has operators that can be compiled", function()
    local options = { device = devices.cuda and "cuda" or "cpu" }
    local x, y = mt.rand({ 1000 }, options), mt.zeros({ 1000 }, options)
    local launched, loaded
    local names = { x = x, y = y, mt = {
      fuse = mt.fuse,
      cuda = { kernel = function(o)
        assert.truthy(o.source:find "^%s*__global__")
        assert.equal("scale", reader.describe(o).name)
        local kernel = devices.cuda and mt.cuda.kernel(o)
        return function(...)
          launched = select("#", ...)
          if kernel then kernel(...) end
        end
      end },
      extension = { load = function(o) loaded = o.name end },
    } }
    assert(load(blocks[2] .. "return swiglu", "README.md", "t", names))()
    assert.equal(4, launched)
    assert.equal("ext", loaded)
    if devices.cuda then assert.is_true(y:allclose(x * 3)) end
  end)
end)

describe("links and files named in", function()
  for _, file in ipairs { "README.md", "CONTRIBUTING.md", "CHANGELOG.md" } do
    it(file .. " are there", function()
      local document, count = shell.read(file), 0
      for target in document:gmatch "%]%(([%w_./-]+)%)" do
        assert.is_true(shell.exists(target), target)
        count = count + 1
      end
      -- the table of specs: below spec/
      for name in document:gmatch "`([%w_/]+_spec%.lua)`" do
        name = name:gsub("^spec/", "")
        assert.is_true(shell.exists("spec/" .. name), name)
        count = count + 1
      end
      for name in document:gmatch "`([%a_]+/[%w_/]+%.%a+)`" do
        local there = shell.exists(name) or shell.exists("spec/" .. name)
        assert.is_true(there, name)
      end
      assert.is_true(count > 0 or file == "CHANGELOG.md")
    end)
  end
end)
