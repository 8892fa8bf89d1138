-- spec/lua/examples_spec.lua: the examples run, and learn.

local idxfile = require "spec.support.idxfile"
local mt = require "mytensor"
local shell = require "spec.support.shell"

local function run(script, ...)
  local words = { shell.lua_command(), "examples/" .. script }
  for _, word in ipairs { ... } do words[#words + 1] = shell.quote(word) end
  return shell.run(table.concat(words, " "))
end

describe("examples/xor.lua", function()
  it("learns the four answers", function()
    local result = run "xor.lua"
    assert.equal(0, result.code, result.err)
    local count = 0
    for a, b, y in result.out:gmatch "(%d) xor (%d) = ([%d.]+)" do
      count = count + 1
      assert.is_true(math.abs((a == b and 0 or 1) - y) < 0.1, result.out)
    end
    assert.equal(4, count)
  end)
end)

describe("examples/forward_backward.lua", function()
  it("learns the stripes by hand-written steps", function()
    local result = run "forward_backward.lua"
    assert.equal(0, result.code, result.err)
    local accuracy = tonumber(result.out:match "test accuracy ([%d.]+)\n$")
    assert.is_true(accuracy and accuracy > 0.95, result.out)
  end)
end)

describe("examples/fuse.lua", function()
  it("makes operators that give what their ops give", function()
    local result = run "fuse.lua"
    assert.equal(0, result.code, result.err)
    assert.truthy(result.out:find("fuse(a, b): silu(a) * b", 1, true), result.out)
    assert.truthy(result.out:find("off by %d", 1), result.out)
  end)
end)

-- A set like Fashion-MNIST, but tiny: class c is a bright bar at row 2 c + 4, noisy.
local function write_bars(folder)
  local function half(prefix, n)
    local pixels, labels = {}, {}
    for i = 1, n do
      local class = i % 10
      labels[i] = class
      for y = 0, 27 do
        for x = 0, 27 do
          local bar = y // 2 == class + 2
          pixels[#pixels + 1] = (bar and 180 or 0) + (i * 31 + x * 17 + y * 7) % 60
        end
      end
    end
    idxfile.write(folder .. "/" .. prefix .. "-images-idx3-ubyte",
                  idxfile.bytes(0x08, { n, 28, 28 }, "B", pixels))
    idxfile.write(folder .. "/" .. prefix .. "-labels-idx1-ubyte.gz",
                  idxfile.bytes(0x08, { n }, "B", labels))
  end
  half("train", 400)
  half("t10k", 50)
end

describe("examples/fashion_mnist.lua", function()
  local folder
  setup(function()
    folder = idxfile.folder()
    write_bars(folder)
  end)
  teardown(function() idxfile.remove(folder) end)

  it("trains, reports and saves", function()
    local out = folder .. "/net.safetensors"
    local result = run("fashion_mnist.lua", "--data", folder, "--epochs=3",
                       "--batch=16", "--out", out, "--seed", "2")
    assert.equal(0, result.code, result.err)
    assert.truthy(result.out:find("Conv2d(1, 16, 5)", 1, true), result.out)
    local last = "epoch 3/3  100%%  [%d,]+ images/s  loss [%d.]+  in "
    assert.truthy(result.out:find(last), result.out)
    assert.truthy(result.out:find("truth: Trouser", 1, true), result.out)
    assert.is_nil(result.out:find("\27", 1, true), "escapes in a file")
    local accuracy = tonumber(result.out:match "test accuracy (0%.%d%d%d%d)\n$"
                              or result.out:match "test accuracy (1%.0000)\n$")
    assert.is_true(accuracy and accuracy > 0.9, result.out)
    local tensors = assert(mt.load_tensors(out))
    assert.same({ 32, 16, 5, 5 }, tensors["4.weight"]:shape())
    assert.same({ 10 }, tensors["10.bias"]:shape())
  end)

  it("gives the same result after the same seed", function()
    local function train(seed)
      local out = folder .. "/seeded.safetensors"
      local result = run("fashion_mnist.lua", "--data", folder, "--epochs=1", "--out",
                         out, "--seed", seed)
      assert.equal(0, result.code, result.err)
      return shell.read(out)
    end
    local first = train "5"
    assert.equal(first, train "5")
    assert.not_equal(first, train "6")
  end)

  it("says which files it looks for and where", function()
    local result = run("fashion_mnist.lua", "--data", folder .. "/none")
    assert.equal(1, result.code)
    assert.truthy(result.err:find("train-images-idx3-ubyte", 1, true), result.err)
    assert.truthy(result.err:find(folder .. "/none", 1, true), result.err)
  end)

  it("shows its options, and refuses others", function()
    local result = run("fashion_mnist.lua", "--help")
    assert.equal(0, result.code)
    for name in ("epochs batch lr seed device data out"):gmatch "%a+" do
      assert.truthy(result.out:find("--" .. name, 1, true), name)
    end
    result = run("fashion_mnist.lua", "--epoch", "3")
    assert.equal(2, result.code)
    assert.equal("unknown option '--epoch' (--help shows the options)\n", result.err)
  end)

  it("refuses values of options that make no sense, before it does anything", function()
    local cases = { epochs = "0", batch = "0", device = "bogus" }
    for name, value in pairs(cases) do
      local result = run("fashion_mnist.lua", "--data", folder, "--" .. name, value)
      assert.equal(2, result.code, name)
      assert.truthy(result.err:find("option '--" .. name .. "': ", 1, true), result.err)
      assert.equal("", result.out)
    end
  end)
end)
