-- spec/lua/serialisation_spec.lua: safetensors files: round trips, and damaged ones.

local mt = require "mytensor"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local path
before_each(function() path = os.tmpname() end)
after_each(function() os.remove(path) end)

local raises = expect.says

-- A file with this header and these bytes of data.
local function write(header, data)
  shell.write(path, string.pack("<s8", header) .. (data or ""))
end

-- The message of load_tensors, without the path.
local function complaint()
  local tensors, message = mt.load_tensors(path)
  assert.is_nil(tensors)
  assert.equal(path .. ": ", message:sub(1, #path + 2))
  return message:sub(#path + 3)
end

local all_dtypes = {
  float32 = { 1.5, -0.25, 3e38 }, float64 = { 1.1, -1e300, 0 },
  float16 = { 1.5, -0.25, 65504 }, bfloat16 = { 1.5, -0.25, 2 ^ 100 },
  int64 = { 0, math.maxinteger, math.mininteger },
  int32 = { 0, 2147483647, -2147483648 },
  int16 = { 0, 32767, -32768 }, int8 = { 0, 127, -128 }, uint8 = { 0, 1, 255 },
  bool = { true, false, true },
}

describe("save_tensors and load_tensors", function()
  it("bring back every dtype, exactly", function()
    local tensors = {}
    for dtype, values in pairs(all_dtypes) do
      tensors[dtype] = mt.tensor(values, { dtype = dtype })
    end
    assert.is_true(mt.save_tensors(path, tensors))
    local loaded = assert(mt.load_tensors(path))
    for dtype, t in pairs(tensors) do
      assert.equal(dtype, loaded[dtype]:dtype())
      assert.is_true(t:equal(loaded[dtype]), dtype)
    end
    for name in pairs(loaded) do assert.truthy(tensors[name], name) end
  end)

  it("bring back NaN, infinities, and the sign of zero", function()
    assert(mt.save_tensors(path, { x = mt.tensor { 0 / 0, 1 / 0, -1 / 0, -0.0 } }))
    local x = mt.load_tensors(path).x:totable()
    assert.is_true(x[1] ~= x[1])
    assert.same({ 1 / 0, -1 / 0 }, { x[2], x[3] })
    assert.equal(-1 / 0, 1 / x[4])
  end)

  it("bring back shapes, empty ones and none too, and any layout", function()
    local t = mt.arange(24):reshape(2, 3, 4)
    local tensors = {
      transposed = t:transpose(1, 3), narrow = t:narrow(3, 2, 2), scalar = mt.tensor(7),
      empty = mt.zeros(0, 3), expanded = mt.tensor({ 5 }):expand(4),
    }
    assert(mt.save_tensors(path, tensors))
    local loaded = assert(mt.load_tensors(path))
    for name, x in pairs(tensors) do
      assert.same(x:shape(), loaded[name]:shape())
      assert.is_true(x:equal(loaded[name]), name)
      assert.is_true(loaded[name]:is_contiguous())
    end
  end)

  it("keep metadata, and names with any characters", function()
    local name = 'a "b" \\ / \n\t\1 \127 ü 漢 𝄞'
    local metadata = { [name] = name, format = "pt" }
    assert(mt.save_tensors(path, { [name] = mt.tensor { 1 } }, metadata))
    local loaded, read = mt.load_tensors(path)
    assert.same({ 1 }, loaded[name]:totable())
    assert.same(metadata, read)
  end)

  it("save nothing too, and tensors that require grad", function()
    assert(mt.save_tensors(path, {}))
    local loaded, metadata = mt.load_tensors(path)
    assert.same({}, loaded)
    assert.same({}, metadata)
    assert(mt.save_tensors(path, { p = mt.nn.Parameter(mt.ones { 2 }) }))
    assert.is_false(mt.load_tensors(path).p.requires_grad)
  end)

  it("write the format byte by byte", function()
    assert(mt.save_tensors(path, { b = mt.tensor({ 1, 2 }, { dtype = "uint8" }),
                                   a = mt.tensor({ { 1.5 } }) }, { k = "v" }))
    local header = '{"__metadata__":{"k":"v"},'
      .. '"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},'
      .. '"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}'
    header = header .. (" "):rep(-#header % 8)
    assert.equal(string.pack("<s8", header) .. string.pack("<f", 1.5) .. "\1\2",
                 shell.read(path))
  end)

  it("restore a network", function()
    local nn = mt.nn
    local function net()
      return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    end
    local a, b = net(), net()
    assert(mt.save_tensors(path, a:state_dict()))
    b:load_state_dict(assert(mt.load_tensors(path)))
    local x = mt.randn(5, 3)
    assert.is_true(a(x):equal(b(x)))
  end)
end)

describe("save_tensors", function()
  it("writes to a device and leaves it one", function()
    local ok, message = mt.save_tensors("/dev/full", { x = mt.ones(100000) })
    assert.is_nil(ok)
    assert.equal("/dev/full: No space left on device", message)
    assert.is_true(mt.save_tensors("/dev/null", { x = mt.ones(3) }))
    assert.equal(0, assert(io.open("/dev/null", "rb")):seek("end"))
  end)

  it("names the path, not its draft, in a folder that isn't there", function()
    local target = path .. "-none/x"
    local ok, message = mt.save_tensors(target, { x = mt.ones(3) })
    assert.is_nil(ok)
    assert.equal(target .. ": No such file or directory", message)
  end)

  it("replaces a file whole, and leaves nothing beside it", function()
    local folder = path .. "-folder"
    require("lfs").mkdir(folder)
    local target = folder .. "/x"
    shell.write(target, "old")
    assert(mt.save_tensors(target, { x = mt.ones { 3 } }))
    assert.same({ 1, 1, 1 }, mt.load_tensors(target).x:totable())
    local names = {}
    for name in require("lfs").dir(folder) do names[#names + 1] = name end
    table.sort(names)
    assert.same({ ".", "..", "x" }, names)
    os.remove(target)
    require("lfs").rmdir(folder)
  end)

  it("gives nil and a message where it can't write, and keeps what is there", function()
    local ok, message = mt.save_tensors(path .. "/x", { x = mt.ones { 3 } })
    assert.is_nil(ok)
    assert.truthy(message:find("Not a directory", 1, true), message)
    local folder = path .. "-folder"
    require("lfs").mkdir(folder)
    ok, message = mt.save_tensors(folder, { x = mt.ones { 3 } })
    assert.is_nil(ok)
    assert.truthy(message:find("directory", 1, true), message)
    require("lfs").rmdir(folder)
    assert.equal(0, #shell.run("ls " .. path .. "*.tmp 2>/dev/null").out)
  end)

  it("checks its arguments before it opens a file", function()
    os.remove(path)
    local x = mt.ones { 1 }
    for text, call in pairs {
      ["#1 to 'save_tensors' (string expected, got nil)"] =
        function() mt.save_tensors() end,
      ["#2 to 'save_tensors' (table expected, got mytensor.Tensor)"] =
        function() mt.save_tensors(path, x) end,
      ["#2 to 'save_tensors' ('a': tensor expected, got float)"] =
        function() mt.save_tensors(path, { a = 1.5 }) end,
      ["#2 to 'save_tensors' (names must be strings, got integer)"] =
        function() mt.save_tensors(path, { x }) end,
      ["#2 to 'save_tensors' (the name '__metadata__' is reserved)"] =
        function() mt.save_tensors(path, { __metadata__ = x }) end,
      ["#2 to 'save_tensors' (the name \"\xff\" is not UTF-8)"] =
        function() mt.save_tensors(path, { ["\xff"] = x }) end,
      ["#3 to 'save_tensors' (metadata must be strings under strings, got integer under"
       .. " string)"] =
        function() mt.save_tensors(path, { a = x }, { epoch = 3 }) end,
    } do
      local expected = "bad argument " .. text
      raises(expected, call)
    end
    assert.is_false(shell.exists(path))
  end)
end)

describe("load_tensors", function()
  it("gives nil and a message for what isn't there or no such file", function()
    local tensors, message = mt.load_tensors(path .. "/x")
    assert.is_nil(tensors)
    assert.truthy(message:find("Not a directory", 1, true), message)
    tensors, message = mt.load_tensors "/"
    assert.is_nil(tensors)
    assert.equal("/: Is a directory", message)
    shell.write(path, "")
    assert.equal("no safetensors file: only 0 bytes", complaint())
    shell.write(path, "PK\3\4 this is some other file")
    assert.truthy(complaint():find("no safetensors file: a header of", 1, true))
    shell.write(path, ("\0"):rep(7) .. "\128rest")
    assert.equal("no safetensors file: a header of 9223372036854775808 bytes (the limit"
                 .. " is 100000000)", complaint())
  end)

  it("refuses headers that are cut, or no JSON object", function()
    shell.write(path, string.pack("<I8", 100) .. "{}")
    assert.equal("the header needs 100 bytes, the file has 2 after its length",
                 complaint())
    write ""
    assert.equal("the header is not a JSON object", complaint())
    write "[1]"
    assert.equal("the header is not a JSON object", complaint())
    for _, text in ipairs { "{", '{"a":}', "{} {}", '{"a":1', "{a:1}" } do
      write(text)
      assert.truthy(complaint():find("the header is not JSON: ", 1, true), text)
    end
    write(("{\"a\":"):rep(20000))
    assert.truthy(complaint():find("the header is not JSON: ", 1, true))
  end)

  it("refuses entries that say nothing sensible", function()
    for entry, expected in pairs {
      ["3"] = "an object expected",
      ["{}"] = "unknown dtype 'nil'",
      ['{"dtype":"F128","shape":[],"data_offsets":[0,16]}'] = "unknown dtype 'F128'",
      ['{"dtype":"U8","data_offsets":[0,4]}'] = "no shape",
      ['{"dtype":"U8","shape":"4","data_offsets":[0,4]}'] = "no shape",
      ['{"dtype":"U8","shape":{"a":4},"data_offsets":[0,1]}'] = "no shape",
      ['{"dtype":"U8","shape":[4.5],"data_offsets":[0,4]}'] =
        "size 1 is not a whole number",
      ['{"dtype":"U8","shape":[2,-2],"data_offsets":[0,4]}'] =
        "size 2 is not a whole number",
      ['{"dtype":"U8","shape":[4]}'] = "no pair of data_offsets",
      ['{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}'] = "no pair of data_offsets",
      ['{"dtype":"U8","shape":[4],"data_offsets":[4,0]}'] = "bad data_offsets [4, 0]",
      ['{"dtype":"U8","shape":[4],"data_offsets":[0,5]}'] =
        "U8 [4] takes 4 bytes, data_offsets give 5",
      ['{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}'] =
        "shape [4294967296, 4294967296] is too large",
      ['{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}'] =
        "13 dims, at most 12 are possible",
    } do
      write('{"t":' .. entry .. "}", "\0\0\0\0")
      assert.equal("tensor 't': " .. expected, complaint())
    end
    write('{"__metadata__":3}')
    assert.equal("__metadata__ is not an object", complaint())
    write('{"__metadata__":{"a":3}}')
    assert.equal("__metadata__ must hold strings under strings", complaint())
  end)

  it("refuses overlaps, gaps, and data that is missing or left over", function()
    local function two(a, b, c, d, data)
      local entry = '"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}'
      write("{" .. entry:format("x", b - a, a, b) .. ","
            .. entry:format("y", d - c, c, d) .. "}", ("\0"):rep(data))
      return complaint()
    end
    assert.equal("tensor 'y' starts at 2, but the one before ends at 4",
                 two(0, 4, 2, 6, 6))
    assert.equal("tensor 'y' starts at 6, after a gap that starts at 4",
                 two(0, 4, 6, 8, 8))
    assert.equal("tensor 'x' starts at 1, after a gap that starts at 0",
                 two(1, 4, 4, 8, 8))
    assert.equal("the header describes 8 bytes of data, the file has 7",
                 two(0, 4, 4, 8, 7))
    assert.equal("the header describes 8 bytes of data, the file has 9",
                 two(0, 4, 4, 8, 9))
  end)

  it("refuses bool elements that are neither true nor false", function()
    write('{"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}', "\0\1\2")
    assert.equal("tensor 't': BOOL element 3 is 2", complaint())
  end)

  it("survives every cut of a good file, and a flipped bit in each byte", function()
    local tensors = { a = mt.ones(2, 2), b = mt.zeros { 3 } }
    assert(mt.save_tensors(path, tensors, { k = "v" }))
    local good = shell.read(path)
    for n = 0, #good - 1 do
      shell.write(path, good:sub(1, n))
      assert.is_nil((mt.load_tensors(path)))
    end
    for n = 1, #good do
      local byte = string.char(good:byte(n) ~ (1 << n % 8))
      shell.write(path, good:sub(1, n - 1) .. byte .. good:sub(n + 1))
      -- Some give another valid file; none may raise.
      local loaded, message = mt.load_tensors(path)
      assert.equal(loaded and "table" or "string", type(message))
    end
  end)

  it("checks its arguments", function()
    raises("bad argument #1 to 'load_tensors' (string expected, got integer)",
           mt.load_tensors, 3)
    raises("bad argument #2 to 'load_tensors' (unknown option 'dev' (known: device))",
           mt.load_tensors, path, { dev = "cpu" })
  end)
end)
