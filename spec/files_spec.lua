-- spec/files_spec.lua: what the Lua parts read files with: gunzip, JSON, bytes; and the
-- steps of optimisers.

local expect = require "spec.support.expect"
local mt = require "mytensor"

local function fails(text, f, ...)
  local value, message = f(...)
  assert.is_nil(value)
  if not message:find(text, 1, true) then
    error(("expected a message with %q, got %q"):format(text, message), 2)
  end
end

describe("_gunzip", function()
  local function output_of(command)
    local pipe = assert(io.popen(command))
    local bytes = pipe:read "a"
    pipe:close()
    return bytes
  end
  local packed = output_of "printf 'hello world' | gzip -c"

  it("unpacks one member or several, with zeros behind them", function()
    assert.equal("hello world", mt._gunzip(packed))
    assert.equal("hello worldhello world", mt._gunzip(packed .. packed))
    assert.equal("hello world", mt._gunzip(packed .. ("\0"):rep(512)))
    assert.equal("", mt._gunzip(output_of "printf '' | gzip -c"))
  end)

  it("unpacks what is far longer than its packed form, and what is not", function()
    local zeros = mt._gunzip(output_of "head -c 3000000 /dev/zero | gzip -c")
    assert.equal(3000000, #zeros)
    assert.is_nil(zeros:find "[^\0]")
    local text = output_of "gzip -c < kernels/ops.def"
    local f = assert(io.open("kernels/ops.def", "rb"))
    assert.equal(f:read "a", mt._gunzip(text))
    f:close()
  end)

  it("says what is wrong with the data", function()
    fails("ends early", mt._gunzip, "")
    fails("header", mt._gunzip, "hello world")
    fails("header", mt._gunzip, packed .. "rest")
    for n = 1, #packed - 1 do fails("ends early", mt._gunzip, packed:sub(1, n)) end
    fails("check", mt._gunzip, packed:sub(1, -9) .. "\1" .. packed:sub(-7))
  end)

  it("stops at its limit", function()
    assert.equal("hello world", mt._gunzip(packed, 11))
    fails("limit", mt._gunzip, packed, 10)
    fails("limit", mt._gunzip, output_of "head -c 3000000 /dev/zero | gzip -c", 100000)
  end)

  it("survives damage at any place", function()
    math.randomseed(1)
    for i = 1, #packed do
      local byte = string.char(math.random(0, 255))
      local ok = pcall(mt._gunzip, packed:sub(1, i - 1) .. byte .. packed:sub(i + 1))
      assert.is_true(ok)
    end
  end)
end)

describe("_json_decode", function()
  local decode = mt._json_decode

  it("reads every kind of value", function()
    assert.same({ a = { 1, 2.5, true, false, "x" }, b = {}, c = { d = -3 } },
      decode ' { "a" : [1, 2.5, true,false, "x"], "b":[] , "c":{"d":-3}}\n')
    assert.equal(-150.0, decode "-1.5E+2")
    assert.equal("userdata", type(decode "null"))
  end)

  it("keeps integers of 64 bits exact", function()
    for _, text in ipairs { "9007199254740993", "9223372036854775807",
      "-9223372036854775808", "0" } do
      local n = decode(text)
      assert.equal("integer", math.type(n))
      assert.equal(text, tostring(n))
    end
    assert.equal("float", math.type(decode "9223372036854775808"))
    assert.equal("float", math.type(decode "1.0"))
  end)

  it("reads escapes, and characters beyond 16 bits", function()
    assert.equal('"\\/\b\f\n\r\t', decode [["\"\\\/\b\f\n\r\t"]])
    assert.equal("\u{20ac}\u{e9}A\0", decode [["\u20ac\u00E9\u0041\u0000"]])
    assert.equal("\u{1F600}", decode [["\ud83d\ude00"]])
  end)

  it("names the byte where it could not go on", function()
    for text, message in pairs {
      [""] = "value expected at byte 1", ["[1,]"] = "value expected at byte 4",
      ['{"a" 1}'] = "':' expected at byte 6",
      ["{1}"] = "name in quotes expected at byte 2",
      ["[1 2]"] = "',' or ']' expected at byte 4", ["01"] = "more follows",
      ["1."] = "digit expected", ["+1"] = "value expected", [".5"] = "value expected",
      ["nul"] = "value expected", ["NaN"] = "value expected", ["0x10"] = "more follows",
      ['"a'] = "unfinished string", ['"\\x"'] = "unknown escape",
      ['"\\u12g4"'] = "hexadecimal", ['"\\ud800"'] = "surrogate",
      ['"\\udc00"'] = "surrogate", ['"\n"'] = "control character",
      ['{"a":1,"a":2}'] = "twice", ["1 2"] = "more follows", ["\0"] = "value expected",
    } do
      fails(message, decode, text)
    end
  end)

  it("has a limit for depth", function()
    assert.is_table(decode(("["):rep(100) .. ("]"):rep(100)))
    fails("deep", decode, ("["):rep(101) .. ("]"):rep(101))
    fails("deep", decode, ("["):rep(1000000))
    fails("deep", decode, ('{"a":'):rep(1000000))
  end)
end)

describe("_from_bytes and _to_bytes", function()
  it("are each other's inverse in every dtype", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64",
      "int32", "int16", "int8", "uint8", "bool" } do
      local x = mt.tensor({ { 0, 1, 2 }, { 3, 100, 1 } }, { dtype = dtype })
      local bytes = mt._to_bytes(x)
      assert.equal(6 * x:element_size(), #bytes)
      assert.is_true(mt._from_bytes(bytes, dtype, { 2, 3 }):equal(x), dtype)
      local turned = mt._from_bytes(mt._to_bytes(x:transpose(1, 2)), dtype, { 3, 2 })
      assert.is_true(turned:equal(x:transpose(1, 2)), dtype)
    end
  end)

  it("take big-endian elements behind an offset", function()
    local bytes = "??" .. (">i4i4"):pack(258, -2)
    assert.same({ 258, -2 }, mt._from_bytes(bytes, "int32", { 2 }, true, 2):totable())
    assert.equal(1.5, mt._from_bytes((">d"):pack(1.5), "float64", {}, true):item())
  end)

  it("read no byte that is not there", function()
    for _, args in ipairs {
      { "abc", "int32", { 1 } }, { "abcd", "int32", { 1 }, false, 1 },
      { "abcd", "int8", { 1 }, false, 5 }, { "abcd", "int8", { 1 }, false, -1 },
      { "abcd", "int8", { 1 << 40, 1 << 40 } }, { "abcd", "int8", { -1 } },
    } do
      assert.is_false((pcall(mt._from_bytes, table.unpack(args))))
    end
    assert.same({ 0, 3 }, mt._from_bytes("", "int8", { 0, 3 }):shape())
  end)

  it("make true of every byte but 0", function()
    assert.same({ false, true, true, true },
      mt._from_bytes("\0\1\2\255", "bool", { 4 }):totable())
    assert.equal("\0\1\1\1", mt._to_bytes(mt._from_bytes("\0\1\2\255", "bool", { 4 })))
  end)
end)

describe("optimiser steps over lists", function()
  local message = expect.message

  it("take parameters of several dtypes in one call", function()
    local p = { mt.ones(3), mt.ones({ 2 }, { dtype = "float64" }), mt.ones(0) }
    local g = { mt.full({ 3 }, 2), mt.full({ 2 }, 4, { dtype = "float64" }),
      mt.ones(0) }
    mt._sgd_step(p, g, nil, 0.25, 0, 0, 0, false)
    assert.same({ 0.5, 0.5, 0.5 }, p[1]:totable())
    assert.same({ 0, 0 }, p[2]:totable())
    local norm = mt._grad_norm(g):item()
    assert.is_true(math.abs(norm - math.sqrt(3 * 4 + 2 * 16)) < 1e-6)
    mt._scale_(g, 0.5)
    assert.same({ 1, 1, 1 }, g[1]:totable())
    mt._scale_(g, mt.tensor(3))
    assert.same({ 6, 6 }, g[2]:totable())
  end)

  it("write to views where they lie", function()
    local whole = mt.zeros(3, 2)
    mt._sgd_step({ whole:select(2, 1) }, { mt.ones(3) }, nil, 1, 0, 0, 0, false)
    assert.same({ { -1, 0 }, { -1, 0 }, { -1, 0 } }, whole:totable())
  end)

  it("check every tensor before any is written", function()
    local p, g = mt.ones(3), mt.ones(3)
    local step = mt._sgd_step
    assert.truthy(message(step, { p, p }, { g }, nil, 1, 0, 0, 0):find "1 tensors")
    assert.truthy(message(step, { p, p }, { g, mt.ones(4) }, nil, 1, 0, 0, 0)
      :find("[2]: shape [4], its parameter has [3]", 1, true))
    assert.truthy(message(step, { p, p }, { g, 1 }, nil, 1, 0, 0, 0):find "number")
    assert.truthy(message(step, { p, p }, { g, g:double() }, nil, 1, 0, 0, 0)
      :find "float64")
    assert.truthy(message(step, { p, mt.ones(1):expand(3) }, { g, g }, nil, 1, 0, 0, 0)
      :find "share memory")
    assert.truthy(message(step, { p }, { g }, nil, "x", 0, 0, 0):find "number expected")
    assert.truthy(message(mt._grad_norm, {}):find "empty")
    assert.truthy(message(mt._grad_norm, { mt.ones({ 1 }, { dtype = "int64" }) })
      :find "int64")
    assert.same({ 1, 1, 1 }, p:totable())
  end)
end)
