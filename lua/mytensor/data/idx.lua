-- lua/mytensor/data/idx.lua: reads IDX files, the format of the MNIST family.
--
-- The header: two zero bytes, a byte for the type, a byte for the number of dims, then
-- each size as an unsigned 32-bit number; big-endian, as the elements that follow.

local mt = require "mytensor"
local check = require "mytensor.check"

-- Type byte -> dtype, bytes of an element.
local types = {
  [0x08] = { "uint8", 1 }, [0x09] = { "int8", 1 }, [0x0B] = { "int16", 2 },
  [0x0C] = { "int32", 4 }, [0x0D] = { "float32", 4 }, [0x0E] = { "float64", 8 },
}

-- The whole file, unpacked if it begins like gzip; nil and a message.
local function read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local bytes
  bytes, message = file:read "a"
  file:close()
  if not bytes then return nil, ("%s: %s"):format(path, message) end
  if bytes:sub(1, 2) == "\x1f\x8b" then
    bytes, message = mt._gunzip(bytes)
    if not bytes then return nil, ("%s: %s"):format(path, message) end
  end
  return bytes
end

-- The header's dtype, shape and length; or nil and what is wrong with it.
local function parse_header(bytes)
  if #bytes < 4 then return nil, ("no IDX file: only %d bytes"):format(#bytes) end
  local zero, code, ndim = (">I2BB"):unpack(bytes)
  if zero ~= 0 then
    return nil, ("no IDX file: begins with bytes %02x %02x, not 00 00"):format(
      zero >> 8, zero & 0xff)
  end
  if not types[code] then
    return nil, ("unknown IDX type 0x%02X (known: 08 09 0B 0C 0D 0E)"):format(code)
  end
  local length = 4 + 4 * ndim
  if #bytes < length then
    return nil, ("header of %d dims needs %d bytes, the file has %d"):format(
      ndim, length, #bytes)
  end
  local dtype, width = types[code][1], types[code][2]
  local shape, size = {}, width
  for i = 1, ndim do
    shape[i] = (">I4"):unpack(bytes, 4 * i + 1)
  end
  local problem = check.shape_problem(shape, width)
  if problem then return nil, problem end
  for _, n in ipairs(shape) do size = size * n end
  return { dtype = dtype, shape = shape, size = size, length = length }
end

--- Read an IDX file, plain or packed by gzip (told by its first bytes, not by its
--- name).
--- @param path string
--- @return mytensor.Tensor? on the CPU, in the file's shape and dtype (uint8 int8 int16
---   int32 float32 float64); nil if the file is missing or not what its header says
--- @return string? message
local function idx(path)
  check.type(1, "idx", path, "string")
  local bytes, message = read(path)
  if not bytes then return nil, message end
  local header
  header, message = parse_header(bytes)
  if not header then return nil, ("%s: %s"):format(path, message) end
  local actual = #bytes - header.length
  if header.size ~= actual then
    return nil, ("%s: the header says %s %s, %d bytes; %d bytes follow it"):format(
      path, header.dtype, check.shape_text(header.shape), header.size, actual)
  end
  return mt._from_bytes(bytes, header.dtype, header.shape, true, header.length)
end

return idx
