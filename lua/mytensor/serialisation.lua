-- lua/mytensor/serialisation.lua: named tensors in a file, in the safetensors format.
--
-- The file: the header's length as a little-endian 64-bit number, the header, the
-- elements. The header is a JSON object, name -> {"dtype", "shape", "data_offsets":
-- [first, end]}, offsets counted from the header's end; "__metadata__" holds strings.
-- The elements lie without gaps. (github.com/huggingface/safetensors describes it.)
-- Nothing in such a file is ever executed.

local mt = require "mytensor"
local check = require "mytensor.check"
local json = require "mytensor.json"

local serialisation = {}

local max_header = 100 * 1000 * 1000 -- bytes, the format's own limit

-- Name in the file -> dtype, bytes of an element.
local types = {
  F64 = { "float64", 8 }, F32 = { "float32", 4 }, F16 = { "float16", 2 },
  BF16 = { "bfloat16", 2 }, I64 = { "int64", 8 }, I32 = { "int32", 4 },
  I16 = { "int16", 2 }, I8 = { "int8", 1 }, U8 = { "uint8", 1 }, BOOL = { "bool", 1 },
}

local code_of = {}
for code, info in pairs(types) do code_of[info[1]] = code end

-- Writing
-- ------------------------------------------------------------------------------

-- The tensors as a list of {name, tensor, code, size in bytes}: wide elements first, so
-- that each is aligned to its width; within a width by name.
local function layout(tensors)
  local list = {}
  for name, tensor in pairs(tensors) do
    if type(name) ~= "string" then
      check.fail(2, "save_tensors", "names must be strings, got %s",
                 check.type_name(name))
    elseif not utf8.len(name) then
      check.fail(2, "save_tensors", "the name %q is not UTF-8", name)
    elseif name == "__metadata__" then
      check.fail(2, "save_tensors", "the name '__metadata__' is reserved")
    elseif not mt.is_tensor(tensor) then
      check.fail(2, "save_tensors", "'%s': tensor expected, got %s", name,
                 check.type_name(tensor))
    end
    local code = code_of[tensor:dtype()]
    if not code then
      check.fail(2, "save_tensors", "'%s': no safetensors type for %s", name,
                 tensor:dtype())
    end
    list[#list + 1] = { name = name, tensor = tensor, code = code,
                        width = types[code][2], size = tensor:numel() * types[code][2] }
  end
  table.sort(list, function(a, b)
    if a.width ~= b.width then return a.width > b.width end
    return a.name < b.name
  end)
  return list
end

local function encode_metadata(metadata)
  local names, parts = {}, {}
  for key, value in pairs(metadata) do
    if type(key) ~= "string" or type(value) ~= "string" then
      check.fail(3, "save_tensors", "metadata must be strings under strings, got %s"
                 .. " under %s", check.type_name(value), check.type_name(key))
    elseif not (utf8.len(key) and utf8.len(value)) then
      check.fail(3, "save_tensors", "the metadata %q is not UTF-8", key)
    end
    names[#names + 1] = key
  end
  table.sort(names)
  for i, key in ipairs(names) do
    parts[i] = json.quote(key) .. ":" .. json.quote(metadata[key])
  end
  return '"__metadata__":{' .. table.concat(parts, ",") .. "}"
end

-- The header with its length in front, padded so that the elements start aligned.
local function encode_header(list, metadata)
  local parts, offset = {}, 0
  if metadata then parts[1] = encode_metadata(metadata) end
  for _, entry in ipairs(list) do
    local text = '%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'
    parts[#parts + 1] = text:format(
      json.quote(entry.name), entry.code, table.concat(entry.tensor:shape(), ","),
      offset, offset + entry.size)
    offset = offset + entry.size
  end
  local header = "{" .. table.concat(parts, ",") .. "}"
  return ("<s8"):pack(header .. (" "):rep(-#header % 8))
end

local function write_all(file, list, metadata)
  local ok, message = file:write(encode_header(list, metadata))
  for _, entry in ipairs(list) do
    if not ok then break end
    ok, message = file:write(mt._to_bytes(entry.tensor:detach()))
  end
  return ok, message
end

--- Save tensors as a .safetensors file, which PyTorch and others read too.
---
--- The file appears whole or not at all: it's written beside its place under another
--- name, then renamed.
--- @param path string
--- @param tensors table<string, mytensor.Tensor> as `state_dict` gives them; any dtype,
---   layout and device
--- @param metadata? table<string, string> texts to keep with them
--- @return boolean? true, or nil if the file can't be written
--- @return string? message
function serialisation.save_tensors(path, tensors, metadata)
  check.type(1, "save_tensors", path, "string")
  check.type(2, "save_tensors", tensors, "table")
  if metadata ~= nil then check.type(3, "save_tensors", metadata, "table") end
  local list = layout(tensors)
  if metadata then encode_metadata(metadata) end -- raises before a file is opened
  -- Programs that save to one path at once must not share the other name.
  local unique = tostring(list):gsub("[^%w]", "")
  local draft = ("%s.%x%s.tmp"):format(path, os.time(), unique)
  -- A device is written to: renaming would put a file in its place.
  local device = path:match("^/dev/[^/]+$") ~= nil
  if device then draft = path end
  local file, message = io.open(draft, "wb")
  if not file then return nil, path .. message:sub(#draft + 1) end -- not the draft
  local fine, ok
  fine, ok, message = pcall(write_all, file, list, metadata)
  local closed, close_message = file:close()
  if fine and ok and closed then
    if device then return true end
    ok, message = os.rename(draft, path)
    if ok then return true end
  end
  if not device then os.remove(draft) end
  if not fine then error(ok, 0) end -- out of memory, or a device that failed
  return nil, ("%s: %s"):format(path, message or close_message)
end

-- Reading
-- ------------------------------------------------------------------------------

-- A size or offset of the header: a whole number that a float holds exactly; or nil.
local function whole(v)
  local i = type(v) == "number" and math.tointeger(v)
  return i and i >= 0 and i < 1 << 53 and i or nil
end

-- One entry of the header as {name, dtype, shape, first, last}; or nil and what is
-- wrong.
local function parse_entry(name, entry)
  if type(entry) ~= "table" then return nil, "an object expected" end
  local info = types[entry.dtype]
  if not info then return nil, ("unknown dtype '%s'"):format(tostring(entry.dtype)) end
  local shape, offsets = entry.shape, entry.data_offsets
  if type(shape) ~= "table" then return nil, "no shape" end
  if type(offsets) ~= "table" or #offsets ~= 2 then
    return nil, "no pair of data_offsets"
  end
  local sizes, bytes = {}, info[2]
  for i = 1, #shape do
    sizes[i] = whole(shape[i])
    if not sizes[i] then return nil, ("size %d is not a whole number"):format(i) end
  end
  for key in pairs(shape) do
    if not (math.type(key) == "integer" and sizes[key]) then return nil, "no shape" end
  end
  local problem = check.shape_problem(sizes, bytes)
  if problem then return nil, problem end
  for _, size in ipairs(sizes) do bytes = bytes * size end
  local first, last = whole(offsets[1]), whole(offsets[2])
  if not (first and last and first <= last) then
    return nil, ("bad data_offsets [%s, %s]"):format(tostring(offsets[1]),
                                                     tostring(offsets[2]))
  end
  if bytes ~= last - first then
    return nil, ("%s %s takes %d bytes, data_offsets give %d"):format(
      entry.dtype, check.shape_text(sizes), bytes, last - first)
  end
  return { name = name, dtype = info[1], shape = sizes, first = first, last = last }
end

-- The entries in the order of their data, and the metadata; or nil and what is wrong.
local function parse_header(text, data_size)
  if text:sub(1, 1) ~= "{" then return nil, "the header is not a JSON object" end
  local header, message = mt._json_decode(text)
  if type(header) ~= "table" then
    return nil, ("the header is not JSON: %s"):format(message or "not an object")
  end
  local metadata, list = header.__metadata__ or {}, {}
  if type(metadata) ~= "table" then return nil, "__metadata__ is not an object" end
  for key, value in pairs(metadata) do
    if type(key) ~= "string" or type(value) ~= "string" then
      return nil, "__metadata__ must hold strings under strings"
    end
  end
  for name, value in pairs(header) do
    if name ~= "__metadata__" then
      local entry
      if type(name) ~= "string" then return nil, "the header is not a JSON object" end
      entry, message = parse_entry(name, value)
      if not entry then return nil, ("tensor '%s': %s"):format(name, message) end
      list[#list + 1] = entry
    end
  end
  table.sort(list, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    if a.last ~= b.last then return a.last < b.last end
    return a.name < b.name
  end)
  local offset = 0
  for _, entry in ipairs(list) do
    if entry.first ~= offset then
      return nil, ("tensor '%s' starts at %d, %s at %d"):format(
        entry.name, entry.first,
        entry.first < offset and "but the one before ends" or "after a gap that starts",
        offset)
    end
    offset = entry.last
  end
  if offset ~= data_size then
    return nil, ("the header describes %d bytes of data, the file has %d"):format(
      offset, data_size)
  end
  return list, metadata
end

local function read_header(file)
  local prefix, message = file:read(8)
  if message then return nil, message end -- a directory, for one
  local size = file:seek "end"
  if not size then return nil, "its size can't be told" end -- a pipe
  if not prefix or #prefix < 8 then
    return nil, ("no safetensors file: only %d bytes"):format(size)
  end
  file:seek("set", 8)
  local length = ("<I8"):unpack(prefix)
  if math.ult(max_header, length) then
    local text = "no safetensors file: a header of %.0f bytes (the limit is %d)"
    return nil, text:format(length >= 0 and length or length + 2.0 ^ 64, max_header)
  end
  if length > size - 8 then
    return nil, ("the header needs %d bytes, the file has %d after its length"):format(
      length, size - 8)
  end
  local text = length > 0 and file:read(length) or ""
  if not text or #text < length then return nil, "the header can't be read" end
  return parse_header(text, size - 8 - length)
end

local function read_tensors(file, device)
  local list, metadata = read_header(file)
  if not list then return nil, metadata end
  local tensors = {}
  for _, entry in ipairs(list) do
    local size = entry.last - entry.first
    local bytes = size > 0 and file:read(size) or ""
    if not bytes or #bytes < size then
      return nil, ("tensor '%s': the file ends early"):format(entry.name)
    end
    if entry.dtype == "bool" then
      local at = bytes:find "[^\0\1]"
      if at then
        return nil, ("tensor '%s': BOOL element %d is %d"):format(
          entry.name, at, bytes:byte(at))
      end
    end
    local tensor = mt._from_bytes(bytes, entry.dtype, entry.shape, false, 0)
    tensors[entry.name] = device and tensor:to(device) or tensor
  end
  return tensors, metadata
end

--- Load the tensors of a .safetensors file. The whole header is checked before any of
--- it is used: sizes, offsets, overlaps, gaps, dtypes.
--- @param path string
--- @param options? { device: string } where the tensors go, default "cpu"
--- @return table<string, mytensor.Tensor>? nil if the file is missing or not valid
--- @return table<string, string>|string metadata, or the message
function serialisation.load_tensors(path, options)
  check.type(1, "load_tensors", path, "string")
  options = check.options(2, "load_tensors", options, { device = check.none })
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local fine, tensors, metadata = pcall(read_tensors, file, options.device)
  file:close()
  if not fine then error(tensors, 0) end
  if not tensors then return nil, ("%s: %s"):format(path, metadata) end
  return tensors, metadata
end

return serialisation
