-- lua/mytensor/class.lua: classes with single inheritance, as plain tables.

--- Make an instance: `Class(...)` allocates, then hands the arguments to `init`.
local function construct(cls, ...)
  local self = cls.__allocate and cls:__allocate() or setmetatable({}, cls)
  self:init(...)
  return self
end

local function name_of(cls)
  return "class " .. cls.__name
end

--- Make a class.
---
--- The class is the metatable of its instances. It inherits the methods of `parent` and
--- a copy of its metamethods, so a metamethod added to the parent later isn't seen. A
--- parent with `__make_index(cls)` decides itself how its descendants look fields up.
---
---     local Point = class "Point"
---     function Point:init(x, y) self.x, self.y = x, y end
---     local p = Point(3, 4)
---
--- @param name string shown by `tostring` and in messages
--- @param parent? table another class
--- @return table
local function class(name, parent)
  if type(name) ~= "string" then
    error("bad argument #1 to 'class' (string expected, got " .. type(name) .. ")", 2)
  end
  if parent ~= nil and not (type(parent) == "table" and rawget(parent, "__name")) then
    error("bad argument #2 to 'class' (class expected, got " .. type(parent) .. ")", 2)
  end
  local cls = {}
  if parent then
    for key, value in next, parent do
      if type(key) == "string" and key:sub(1, 2) == "__" then cls[key] = value end
    end
  end
  cls.__name = name
  cls.__parent = parent
  cls.__index = cls.__make_index and cls:__make_index() or cls
  cls.init = parent == nil and function() end or nil
  return setmetatable(cls, {
    __index = parent, __call = construct, __tostring = name_of, __name = "class",
  })
end

return class
