-- lua/mytensor/nn/walk.lua: traversals of a tree of modules, as lists of {name, value}.

local mt = require "mytensor"
local Parameter = require "mytensor.nn.parameter"

local walk = {}

walk.float_dtypes = { float32 = true, float64 = true, float16 = true, bfloat16 = true }
walk.dtypes = {
  float32 = true, float64 = true, float16 = true, bfloat16 = true, int64 = true,
  int32 = true, int16 = true, int8 = true, uint8 = true, bool = true,
}

--- @return boolean
function walk.is_module(v)
  return type(v) == "table" and rawget(v, "_state") ~= nil
         and getmetatable(v) ~= nil and getmetatable(v).is_module == true
end

--- The fields of one module that have the kind, in the order of registration.
local function fields(module, kind)
  local state, list = rawget(module, "_state"), {}
  for _, key in ipairs(state.order) do
    if state.kinds[key] == kind then
      list[#list + 1] = { tostring(key), state.values[key], state.transient[key] }
    end
  end
  return list
end

--- @return table list of {name, module}
function walk.children(module)
  return fields(module, "module")
end

-- Every place in the tree where a module stands; with `once`, a module's first place
-- only.
local function places(module, prefix, seen, once, list)
  if seen[module] then return list end
  seen[module] = true
  list[#list + 1] = { prefix, module }
  for _, child in ipairs(walk.children(module)) do
    local name = prefix == "" and child[1] or prefix .. "." .. child[1]
    places(child[2], name, seen, once, list)
  end
  -- Without `once` a module still can't stand inside itself.
  if not once then seen[module] = nil end
  return list
end

--- @return table list of {dotted name, module}, parents first, each module once
function walk.modules(module)
  return places(module, "", {}, true, {})
end

--- The parameters or buffers of the tree, each tensor once.
--- @param kind string "parameter" or "buffer"
--- @return table list of {dotted name, tensor}
function walk.tensors(module, kind)
  local list, seen = {}, {}
  for _, place in ipairs(walk.modules(module)) do
    for _, field in ipairs(fields(place[2], kind)) do
      if not seen[field[2]] then
        seen[field[2]] = true
        local name = place[1] == "" and field[1] or place[1] .. "." .. field[1]
        list[#list + 1] = { name, field[2] }
      end
    end
  end
  return list
end

--- What a state_dict holds: shared tensors under each of their names.
--- @return table list of {dotted name, tensor}
function walk.state(module)
  local list = {}
  for _, place in ipairs(places(module, "", {}, false, {})) do
    for _, kind in ipairs { "parameter", "buffer" } do
      for _, field in ipairs(fields(place[2], kind)) do
        if not field[3] then
          local name = place[1] == "" and field[1] or place[1] .. "." .. field[1]
          list[#list + 1] = { name, field[2] }
        end
      end
    end
  end
  return list
end

-- The tensor in another dtype or on another device; itself if nothing changes.
local function converted(tensor, dtype, device)
  local new = tensor:detach()
  if dtype and walk.float_dtypes[new:dtype()] then new = new:to(dtype) end
  if device then new = new:to(device) end
  if new:dtype() == tensor:dtype() and new:device() == tensor:device() then
    return tensor
  end
  return new
end

--- Replace the tensors of the tree by their conversions, shared ones by one.
--- @param dtype? string
--- @param device? string
function walk.convert(module, dtype, device)
  local new_of = {}
  for _, place in ipairs(walk.modules(module)) do
    local state = rawget(place[2], "_state")
    for _, key in ipairs(state.order) do
      local kind, old = state.kinds[key], state.values[key]
      if kind ~= "module" then
        local new = new_of[old] or converted(old, dtype, device)
        if kind == "parameter" and new ~= old and not new_of[old] then
          new = Parameter(new, old.requires_grad)
          if old.grad then new.grad = converted(old.grad, dtype, device) end
        end
        new_of[old] = new
        state.values[key] = mt.keep(new)
      end
    end
  end
end

--- An iterator over a list of {name, value}.
--- @return function
function walk.iterate(list)
  local i = 0
  return function()
    i = i + 1
    if list[i] then return list[i][1], list[i][2] end
  end
end

--- @return table the values of a list of {name, value}
function walk.values(list)
  local values = {}
  for i, entry in ipairs(list) do values[i] = entry[2] end
  return values
end

return walk
