-- spec/lua/class_spec.lua: classes, and the messages of argument checks.

local mt = require "mytensor"
local class = mt.class

describe("a class", function()
  local Animal = class "Animal"
  function Animal:init(name) self.name = name end
  function Animal:__tostring() return "<" .. self.name .. ">" end
  function Animal:__len() return #self.name end
  function Animal.legs() return 4 end

  local Bird = class("Bird", Animal)
  function Bird.legs() return 2 end

  it("makes instances by a call, whose arguments go to init", function()
    assert.equal("Rex", Animal("Rex").name)
    assert.equal(Animal, getmetatable(Animal "Rex"))
  end)

  it("inherits methods and metamethods, and may override them", function()
    local tweety = Bird "Tweety"
    assert.equal("<Tweety>", tostring(tweety))
    assert.equal(6, #tweety)
    assert.equal(2, tweety:legs())
    assert.equal(4, Animal("Rex"):legs())
  end)

  it("shows its name", function()
    assert.equal("class Bird", tostring(Bird))
  end)

  it("works without an init", function()
    local Empty = class "Empty"
    assert.equal(Empty, getmetatable(Empty()))
  end)

  it("wants a name, and a class as parent", function()
    assert.has_error(function() class() end,
                     "bad argument #1 to 'class' (string expected, got nil)")
    assert.has_error(function() class("X", {}) end,
                     "bad argument #2 to 'class' (class expected, got table)")
  end)
end)

describe("an error of the Lua part", function()
  it("has the position of the caller's line", function()
    local ok, message = pcall(function()
      mt.nn.Linear(2, "x")
    end)
    local line = debug.getinfo(1, "l").currentline - 2 -- of the call
    assert.is_false(ok)
    assert.truthy(message:find("class_spec.lua:" .. line .. ":", 1, true), message)
  end)
end)
