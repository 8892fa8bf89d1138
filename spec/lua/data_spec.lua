-- spec/lua/data_spec.lua: IDX files, the MNIST family, datasets and loaders.

local mt = require "mytensor"
local idxfile = require "spec.support.idxfile"
local expect = require "spec.support.expect"
local data = mt.data

local raises = expect.says

local folder
setup(function() folder = idxfile.folder() end)
teardown(function() idxfile.remove(folder) end)

local function file(name, bytes)
  local path = folder .. "/" .. name
  os.remove(path)
  idxfile.write(path, bytes)
  return path
end

-- The message of data.idx for a file of these bytes, without its path.
local function complaint(bytes)
  local path = file("bad", bytes)
  local t, message = data.idx(path)
  assert.is_nil(t)
  assert.equal(path .. ": ", message:sub(1, #path + 2))
  return message:sub(#path + 3)
end

describe("data.idx", function()
  it("reads every type, big-endian", function()
    for _, case in ipairs {
      { 0x08, "B", "uint8", { 0, 1, 128, 255 } },
      { 0x09, "b", "int8", { 0, 1, -128, 127 } },
      { 0x0B, "i2", "int16", { 0, 258, -32768, 32767 } },
      { 0x0C, "i4", "int32", { 0, 16909060, -2147483648, 2147483647 } },
      { 0x0D, "f", "float32", { 0, 1.5, -2.25, 1e10 } },
      { 0x0E, "d", "float64", { 0, 1.1, -2.25, 1e300 } },
    } do
      local path = file("typed", idxfile.bytes(case[1], { 2, 2 }, case[2], case[4]))
      local t = assert(data.idx(path))
      assert.equal(case[3], t:dtype())
      assert.same({ 2, 2 }, t:shape())
      assert.equal("cpu", t:device())
      assert.same(case[4], t:reshape(4):totable())
    end
  end)

  it("reads files packed by gzip, whatever their name", function()
    local bytes = idxfile.bytes(0x08, { 3 }, "B", { 7, 8, 9 })
    local path = file("packed.gz", bytes)
    assert.same({ 7, 8, 9 }, assert(data.idx(path)):totable())
    os.rename(path, folder .. "/packed")
    assert.same({ 7, 8, 9 }, assert(data.idx(folder .. "/packed")):totable())
  end)

  it("reads empty dims, and no dims", function()
    local t = assert(data.idx(file("empty", idxfile.bytes(0x08, { 0, 28 }, "B", {}))))
    assert.same({ 0, 28 }, t:shape())
    t = assert(data.idx(file("scalar", idxfile.bytes(0x0D, {}, "f", { 2.5 }))))
    assert.same({}, t:shape())
    assert.equal(2.5, t:item())
  end)

  it("gives nil and a message for a file that isn't there", function()
    local t, message = data.idx(folder .. "/none")
    assert.is_nil(t)
    assert.truthy(message:find("none: No such file or directory", 1, true), message)
    t, message = data.idx(folder)
    assert.is_nil(t)
    assert.truthy(message:find("Is a directory", 1, true), message)
  end)

  it("checks the file against its header", function()
    local good = idxfile.bytes(0x08, { 2, 3 }, "B", { 1, 2, 3, 4, 5, 6 })
    assert.equal("no IDX file: only 0 bytes", complaint "")
    assert.equal("no IDX file: only 3 bytes", complaint "\0\0\8")
    assert.equal("no IDX file: begins with bytes 50 4b, not 00 00",
                 complaint "PK\3\4andsoon")
    assert.equal("unknown IDX type 0x0A (known: 08 09 0B 0C 0D 0E)",
                 complaint "\0\0\10\1\0\0\0\0")
    assert.equal("header of 2 dims needs 12 bytes, the file has 8",
                 complaint(good:sub(1, 8)))
    assert.equal("the header says uint8 [2, 3], 6 bytes; 5 bytes follow it",
                 complaint(good:sub(1, -2)))
    assert.equal("the header says uint8 [2, 3], 6 bytes; 7 bytes follow it",
                 complaint(good .. "x"))
  end)

  it("isn't fooled by sizes whose product overflows", function()
    local huge = idxfile.bytes(0x0E, { 1 << 31, 1 << 31, 1 << 31 }, "d", {})
    assert.equal("shape [2147483648, 2147483648, 2147483648] is too large",
                 complaint(huge))
    -- 2^64 elements: the product of integers would be 0.
    local wrapped = idxfile.bytes(0x08, { 1 << 16, 1 << 16, 1 << 16, 1 << 16 }, "B", {})
    assert.equal("shape [65536, 65536, 65536, 65536] is too large", complaint(wrapped))
    local deep = "\0\0\8\13" .. ("\0\0\0\1"):rep(13) .. "x"
    assert.equal("13 dims, at most 12 are possible", complaint(deep))
  end)

  it("reports packed data that is damaged or cut", function()
    local path = file("cut.gz", idxfile.bytes(0x08, { 200 }, "B", (function()
      local values = {}
      for i = 1, 200 do values[i] = i * i % 251 end
      return values
    end)()))
    local f = assert(io.open(path, "rb"))
    local bytes = f:read "a"
    f:close()
    for _, bad in ipairs { bytes:sub(1, -9), bytes:sub(1, 12), bytes:sub(1, 2),
                           bytes:sub(1, 30) .. "\255\255\255" .. bytes:sub(34) } do
      assert.truthy(#complaint(bad) > 5)
    end
  end)

  it("wants a path", function()
    raises("bad argument #1 to 'idx' (string expected, got nil)", data.idx)
  end)
end)

describe("data.fashion_mnist and data.mnist", function()
  local function with_files(suffix, change, fn)
    local path = idxfile.folder()
    idxfile.mnist(path, suffix, change)
    local ok, message = pcall(fn, path)
    idxfile.remove(path)
    if not ok then error(message, 0) end
  end

  local function message_of(change)
    local text
    with_files("", change, function(path)
      local set, message = data.mnist(path)
      assert.is_nil(set)
      text = message
    end)
    return text
  end

  it("give images in 0..1, labels from 1, and the names of the classes", function()
    for _, suffix in ipairs { "", ".gz" } do
      with_files(suffix, nil, function(path)
        local set = assert(data.fashion_mnist(path))
        assert.equal(5, #set.train)
        assert.equal(3, #set.test)
        local images, labels = set.train.images, set.train.labels
        assert.same({ 5, 1, 2, 3 }, images:shape())
        assert.equal("float32", images:dtype())
        assert.is_true(math.abs(images[{ 1, 1, 1, 2 }]:item() - 74 / 255) < 1e-7)
        assert.equal("int64", labels:dtype())
        assert.same({ 4, 7, 10, 3, 6 }, labels:totable())
        assert.equal(10, #set.classes)
        assert.equal("Boot", set.classes[10])
        assert.equal("9", data.mnist(path).classes[10])
      end)
    end
  end)

  it("say which four files they look for, and where", function()
    local set, message = data.fashion_mnist(folder .. "/none")
    assert.is_nil(set)
    for _, text in ipairs { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
                            folder .. "/none", "dataset-fashion-mnist" } do
      assert.truthy(message:find(text, 1, true), message)
    end
  end)

  it("name a single file that is missing", function()
    local text = message_of { ["t10k-labels-idx1-ubyte"] = function() return nil end }
    assert.truthy(text:find("(without t10k-labels-idx1-ubyte)", 1, true), text)
  end)

  it("refuse files that don't fit together", function()
    local text = message_of {
      ["train-labels-idx1-ubyte"] = function()
        return idxfile.bytes(0x08, { 4 }, "B", { 1, 2, 3, 4 })
      end,
    }
    assert.truthy(text:find("4 labels for 5 images", 1, true), text)
    text = message_of {
      ["t10k-labels-idx1-ubyte"] = function()
        return idxfile.bytes(0x08, { 3 }, "B", { 1, 10, 3 })
      end,
    }
    assert.truthy(text:find("label 10, but there are 10 classes (0 to 9)", 1, true))
    text = message_of {
      ["train-images-idx3-ubyte"] = function()
        return idxfile.bytes(0x08, { 5 }, "B", { 1, 2, 3, 4, 5 })
      end,
    }
    assert.truthy(text:find("uint8 images (N, H, W) expected, got uint8 [5]", 1, true),
                  text)
    text = message_of {
      ["train-images-idx3-ubyte"] = function(bytes) return bytes:sub(1, -2) end,
    }
    assert.truthy(text:find("29 bytes follow it", 1, true), text)
  end)
end)

describe("a TensorDataset", function()
  local function dataset()
    return data.TensorDataset({ mt.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } },
                                mt.tensor { 10, 20, 30 } }, { "x", "y" })
  end

  it("counts examples, and gives them by position and name", function()
    local set = dataset()
    assert.equal(3, #set)
    local x, y = set:get(2)
    assert.same({ 3, 4 }, x:totable())
    assert.equal(20, y:item())
    assert.equal(30, select(2, set:get(-1)):item())
    assert.equal(set.tensors[1], set.x)
  end)

  it("splits into views that keep the names", function()
    local set = dataset()
    local a, b = set:split(2)
    assert.same({ 10, 20 }, a.y:totable())
    assert.same({ { 5, 6 } }, b.x:totable())
    b.x:fill_(0)
    assert.same({ { 1, 2 }, { 3, 4 }, { 0, 0 } }, set.x:totable())
    raises("bad argument #1 to 'split' (4 examples of 3)", set.split, set, 4)
  end)

  it("wants tensors with as many examples", function()
    raises("bad argument #1 to 'TensorDataset' (tensor 2 has 2 examples, the first has"
           .. " 3)", data.TensorDataset, { mt.zeros(3), mt.zeros(2) })
    raises("bad argument #1 to 'TensorDataset' (tensor 1 has no dims)",
           data.TensorDataset, { mt.tensor(1) })
    raises("bad argument #1 to 'TensorDataset' (the list of tensors is empty)",
           data.TensorDataset, {})
  end)
end)

describe("a DataLoader", function()
  local function range(n) return mt.tensor((function()
    local list = {}
    for i = 1, n do list[i] = i end
    return list
  end)()) end

  local function collect(loader)
    local sizes, values = {}, {}
    for i, x, y in loader:iter() do
      assert.equal(i, #sizes + 1)
      sizes[i] = x:size(1)
      for k, v in ipairs(x:totable()) do
        values[#values + 1] = v
        assert.equal(v * 2, y[k]:item())
      end
    end
    assert.equal(#loader, #sizes)
    return sizes, values
  end

  local function loader_of(n, options)
    options.dataset = { range(n), range(n) * 2 }
    return data.DataLoader(options)
  end

  it("gives batches in order, the last one smaller or not at all", function()
    local sizes, values = collect(loader_of(10, { batch_size = 4 }))
    assert.same({ 4, 4, 2 }, sizes)
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, values)
    sizes = collect(loader_of(10, { batch_size = 4, drop_last = true }))
    assert.same({ 4, 4 }, sizes)
    assert.same({ 1, 1 }, (collect(loader_of(2, {}))))
    assert.same({}, (collect(loader_of(3, { batch_size = 4, drop_last = true }))))
  end)

  it("shuffles: each example once, in another order each time", function()
    mt.manual_seed(3)
    local loader = loader_of(100, { batch_size = 7, shuffle = true })
    local _, first = collect(loader)
    local _, second = collect(loader)
    assert.not_same(first, second)
    for _, list in ipairs { first, second } do
      table.sort(list)
      for i = 1, 100 do assert.equal(i, list[i]) end
    end
  end)

  it("repeats its orders by seed, without touching the global generator", function()
    local function orders(seed)
      local loader = loader_of(50, { batch_size = 50, shuffle = true, seed = seed })
      local _, a = collect(loader)
      local _, b = collect(loader)
      return a, b
    end
    mt.manual_seed(1)
    local expected = mt.rand(3):totable()
    mt.manual_seed(1)
    local a1, b1 = orders(42)
    assert.same(expected, mt.rand(3):totable())
    local a2, b2 = orders(42)
    assert.same(a1, a2)
    assert.same(b1, b2)
    assert.not_same(a1, b1)
    assert.not_same(a1, (orders(43)))
  end)

  it("may be left early and walked twice at once", function()
    local loader = loader_of(6, { batch_size = 2 })
    loader:iter()()
    local seen = {}
    for i in loader:iter() do
      for j in loader:iter() do seen[#seen + 1] = i * 10 + j end
    end
    assert.same({ 11, 12, 13, 21, 22, 23, 31, 32, 33 }, seen)
  end)

  it("stacks the examples of a dataset of one's own", function()
    local squares = setmetatable({
      get = function(_, i) return mt.full({ 2 }, i), mt.tensor(i * i) end,
    }, { __len = function() return 5 end })
    local rows, labels = {}, {}
    for i, x, y in data.DataLoader { dataset = squares, batch_size = 2 }:iter() do
      rows[i], labels[i] = x:totable(), y:totable()
    end
    assert.same({ { { 1, 1 }, { 2, 2 } }, { { 3, 3 }, { 4, 4 } }, { { 5, 5 } } }, rows)
    assert.same({ { 1, 4 }, { 9, 16 }, { 25 } }, labels)
  end)

  it("hands positions to a dataset that makes batches", function()
    local set = setmetatable({ batch = function(_, index) return index * 10 end },
                             { __len = function() return 3 end })
    local batches = {}
    for i, x in data.DataLoader { dataset = set, batch_size = 2 }:iter() do
      batches[i] = x:totable()
    end
    assert.same({ { 10, 20 }, { 30 } }, batches)
  end)

  it("checks its arguments", function()
    raises("bad argument #1 to 'DataLoader' (batch_size must be at least 1, got 0)",
           loader_of, 3, { batch_size = 0 })
    raises("bad argument #1 to 'DataLoader' (dataset: TensorDataset, list of tensors,"
           .. " or object with 'get' or 'batch' expected, got nil)", data.DataLoader,
           {})
    raises("with 'get' or 'batch' expected, got integer)", data.DataLoader,
           { dataset = 1 })
    raises("unknown option 'batchsize'", loader_of, 3, { batchsize = 1 })
  end)
end)
