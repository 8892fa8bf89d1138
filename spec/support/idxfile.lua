-- spec/support/idxfile.lua: writes IDX files, good and bad ones, for the data specs.

local shell = require "spec.support.shell"
local idxfile = {}

--- The bytes of an IDX file: type byte, sizes, and the elements packed by a format of
--- string.pack.
function idxfile.bytes(code, shape, format, values)
  local parts = { string.pack(">BBBB", 0, 0, code, #shape) }
  for _, size in ipairs(shape) do parts[#parts + 1] = string.pack(">I4", size) end
  for _, v in ipairs(values) do parts[#parts + 1] = string.pack(">" .. format, v) end
  return table.concat(parts)
end

--- A new folder; the caller removes it by `remove`.
function idxfile.folder()
  local path = os.tmpname()
  os.remove(path)
  assert(require("lfs").mkdir(path))
  return path
end

function idxfile.remove(folder)
  assert(folder:find "^/tmp/", folder)
  os.execute("rm -rf " .. shell.quote(folder))
end

--- Write a file, packed by gzip if its name ends in .gz.
function idxfile.write(path, bytes)
  local plain = path:match "^(.*)%.gz$"
  shell.write(plain or path, bytes)
  if plain then
    assert(os.execute("gzip -n " .. shell.quote(plain)))
  end
end

--- Write the four files of a small MNIST-like set: 5 and 3 images of 2 x 3.
--- suffix: "" or ".gz"; change: file -> function(bytes) -> other bytes, or nil for none
function idxfile.mnist(folder, suffix, change)
  local function images(n)
    local values = {}
    for i = 1, n * 6 do values[i] = (i * 37) % 256 end
    return idxfile.bytes(0x08, { n, 2, 3 }, "B", values)
  end
  local function labels(n)
    local values = {}
    for i = 1, n do values[i] = (i * 3) % 10 end
    return idxfile.bytes(0x08, { n }, "B", values)
  end
  for name, bytes in pairs {
    ["train-images-idx3-ubyte"] = images(5), ["train-labels-idx1-ubyte"] = labels(5),
    ["t10k-images-idx3-ubyte"] = images(3), ["t10k-labels-idx1-ubyte"] = labels(3),
  } do
    if change and change[name] then bytes = change[name](bytes) end
    if bytes then idxfile.write(folder .. "/" .. name .. suffix, bytes) end
  end
end

return idxfile
