-- spec/extension_load_spec.lua: mt.extension: C, C++ and CUDA sources as modules.

local answers = require "spec.support.answers"
local devices = require "spec.support.devices"
local mt = require "mytensor"
local shell = require "spec.support.shell"

local function needs(program) answers.needs(program, pending) end
local function folder() return answers.folder(finally) end

local COUNT, LOAD, load_count, modules_in, run = answers.COUNT, answers.LOAD,
  answers.load_count, answers.modules_in, answers.run

describe("mt.extension.load", function()
  it("compiles what has changed: sources and headers; else loads in milliseconds",
    function()
      needs "cc"
      local here = folder()
      shell.write(here .. "/count.c", COUNT)
      shell.write(here .. "/answer.h", "#define ANSWER 41\n")
      assert.equal(41, (load_count(here)))
      local answer, seconds = load_count(here)
      assert.equal(41, answer)
      if not shell.sanitized then assert.is_true(seconds < 0.02, seconds) end
      assert.equal(1, (modules_in(here)))
      shell.write(here .. "/answer.h", "#define ANSWER 42\n")
      assert.equal(42, (load_count(here)))
      assert.equal(2, (modules_in(here)))
      shell.write(here .. "/count.c", COUNT .. "\n")
      assert.equal(42, (load_count(here)))
      assert.equal(3, (modules_in(here)))
      local r = run(here, [[
        local function load(flags)
          return mt.extension.load { name = "count", sources = { here .. "/count.c" },
            flags = flags }
        end
        assert(load() == load())
        assert(load() ~= load "-DOTHER -O1")
        assert(load { "-DOTHER", "-O1" } == load "-DOTHER -O1")
      ]])
      assert.equal(0, r.code, r.err)
      assert.equal(4, (modules_in(here)))
    end)

  it("sees a header that comes to stand before the one that was included", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    for _, name in ipairs { "first", "second" } do
      assert(mt._make_folder(here .. "/" .. name))
    end
    local function answer()
      local r = run(here, [[
        print(mt.extension.load { name = "count", sources = { here .. "/count.c" },
          flags = { "-I", here .. "/first/", "-I" .. here .. "/second" } }.answer())]])
      assert.equal(0, r.code, r.err)
      return tonumber(r.out), (modules_in(here))
    end
    shell.write(here .. "/second/answer.h", "#define ANSWER 41\n")
    assert.same({ 41, 1 }, { answer() })
    assert.same({ 41, 1 }, { answer() })
    shell.write(here .. "/first/answer.h", "#define ANSWER 42\n")
    assert.same({ 42, 2 }, { answer() })
    shell.write(here .. "/answer.h", "#define ANSWER 43\n") -- beside the source
    assert.same({ 43, 3 }, { answer() })
  end)

  it("refuses sources that are no regular files", function()
    local here = folder()
    assert.is_true(os.execute("mkfifo " .. here .. "/pipe.c"))
    local ok, err = pcall(mt.extension.load, { name = "pipe",
      sources = { here .. "/pipe.c" } })
    assert.is_false(ok)
    assert.truthy(err:find("pipe.c is no regular file", 1, true), err)
  end)

  it("gives the compiler's and the linker's messages", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/bad.c", '#include "mytensor.h"\n\n'
      .. "int f(void) { return no; }\n")
    shell.write(here .. "/none.c", "int nothing;\n")
    shell.write(here .. "/second.cc", "int f() { return nought; }\n")
    shell.write(here .. "/undefined.c", '#include "mytensor.h"\nint none_such(void);\n'
      .. "MT_EXTENSION_OPEN(L) { lua_pushinteger(L, none_such()); return 1; }\n")
    shell.write(here .. "/raises.c", '#include "mytensor.h"\n'
      .. "#ifdef TABLE\n#define luaL_error(L, a, b) (lua_newtable(L), lua_error(L))\n"
      .. '#endif\nMT_EXTENSION_OPEN(L) { return luaL_error(L, "not %s", "today"); }\n')
    local r = run(here, [[
      local function fails(name, options)
        options = options or {}
        options.name, options.sources = name, { here .. "/" .. name .. ".c" }
        print(select(2, pcall(function() mt.extension.load(options) end)))
      end
      fails "bad"
      print(pcall(mt.extension.load, { name = "two", sources = { here .. "/none.c",
        here .. "/second.cc", here .. "/none.c" } }))
      fails "none"
      fails "undefined"
      fails("none", { link_flags = { "-lno_such_library" } })
      fails "raises"
      print(type(select(2, pcall(mt.extension.load, { name = "raises",
        sources = { here .. "/raises.c" }, flags = "-DTABLE" }))))
      fails "missing"
      print(mt.ones(2):sum():item())
    ]])
    local function has(text)
      assert.truthy(r.out:find(text, 1, true), r.out .. r.err)
    end
    has(("mt.extension.load: %s/bad.c does not compile\n"):format(here))
    has(here .. "/bad.c:3:")
    has(("mt.extension.load: %s/second.cc does not compile\n%s/second.cc: "):format(
      here, here))
    has "no source defines luaopen_none: MT_EXTENSION_OPEN(L) {...}"
    has "undefined symbol: none_such"
    has "mt.extension.load: none does not link\n"
    has "no_such_library"
    has "mt.extension.load: luaopen_raises: not today\ntable\n"
    has "/missing.c: No such file or directory"
    has "2.0"
    assert.equal(0, r.code)
    assert.equal("", shell.run("ls -d " .. here .. "/cache/extensions/*/work*").out)
  end)

  it("checks its options", function()
    local function fails(message, options)
      local ok, err = pcall(function() mt.extension.load(options) end)
      assert.is_false(ok)
      assert.truthy(err:find("^spec/extension_load_spec.lua:%d+: mt.extension.load: "
        .. message), err)
    end
    fails "table with name and sources expected, got nil"
    fails("unknown option 'source'", { source = "x" })
    fails("unknown option 'output'", { output = "x" })
    fails("name is missing", { sources = { "x.c" } })
    fails("name: string expected, got number", { name = 1 })
    fails("name 'a%-b' is no identifier", { name = "a-b", sources = { "x.c" } })
    fails("sources = {...} is missing", { name = "a" })
    fails("sources = {...} is missing", { name = "a", sources = {} })
    fails("sources: table expected", { name = "a", sources = "x.c" })
    fails("sources%[1%]: string expected, got number", { name = "a", sources = { 1 } })
    fails("flags: string or list", { name = "a", sources = { "x.c" }, flags = 1 })
    fails("x.f90: %.c, %.cpp or %.cu expected", { name = "a", sources = { "x.f90" } })
    fails("sources%[1%] holds a zero byte", { name = "a", sources = { "y\0.c" } })
    fails("sources%[1%] holds a line break", { name = "a", sources = { "x\ny.c" } })
    local here = folder()
    shell.write(here .. "/x.c", "")
    local x = { here .. "/x.c" }
    fails("flags%[1%] holds a zero byte", { name = "a", sources = x,
      flags = "-DA=\0" })
    fails("flags: list of strings expected, got key O", { name = "a", sources = x,
      flags = { O = "3" } })
    fails("%d+ bytes of commands are too many for the shell", { name = "a", sources = x,
      flags = ("-DA "):rep(40000) })
  end)

  it("says which compiler is missing", function()
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    shell.write(here .. "/count.cu", COUNT)
    os.execute(("ln -s \"$(realpath \"$(command -v %s)\")\" %s/"):format(shell.lua,
      here))
    local r = run(here, [[
      print(pcall(mt.extension.load, { name = "a", sources = { here .. "/count.c" } }))
      print(pcall(mt.extension.load, { name = "a", sources = { here .. "/count.cu" } }))
      print(mt.extension.nvcc())
    ]], ("PATH=%s CC= CXX= NVCC= CUDA_HOME=/nowhere"):format(here))
    assert.truthy(r.out:find("a C compiler was not found (looked for $CC, cc", 1, true),
      r.out .. r.err)
    if not shell.exists "/usr/local/cuda/bin/nvcc" then
      assert.truthy(r.out:find("nvcc was not found (looked in $NVCC", 1, true), r.out)
    end
    r = run(here, LOAD, "CC=/nowhere/cc MYTENSOR_CACHE=" .. here)
    assert.truthy(r.err:find("count.c does not compile", 1, true), r.err)
  end)

  it("shows what it does when asked", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/it's.c", COUNT:gsub('#include "answer.h"', "")
      :gsub("ANSWER", "9"))
    local r = run(here, [[
      local options = { name = "count", verbose = true }
      options.sources = { here .. "/it's.c" }
      print(mt.extension.load(options).answer())
    ]])
    assert.equal("9\n", r.out, r.err)
    assert.truthy(r.err:find("-DMT_EXTENSION_NAME=count", 1, true), r.err)
    assert.truthy(r.err:find("count: built in ", 1, true), r.err)
  end)
end)

describe("mytensor.h of version 2", function()
  local loaded
  local function extension()
    needs "cc"
    loaded = loaded or mt.extension.load { name = "api",
      sources = { "spec/support/api.c" }, flags = "-Wall -Wextra -Werror" }
    return loaded
  end

  it("gives new tensors, contiguous ones and converted ones", function()
    local x = mt.arange(6, { dtype = "int16" }):view(2, 3)
    local y = extension().empty_like(x:t())
    assert.same({ 3, 2 }, y:shape())
    assert.equal("int16", y:dtype())
    assert.is_true(extension().contiguous(x) == x)
    local z = extension().contiguous(x:t())
    assert.is_true(z:is_contiguous())
    assert.is_true(z:equal(x:t()))
    assert.same({ true, 6, 1, 0 }, { extension().info(x) })
    assert.same({ false, 6, 1, 0 }, { extension().info(x:t()) })
    local lent = extension().constant()
    assert.same({ 3, 4 }, lent:totable())
    lent:free()
    local taken, reason = pcall(extension().constant, true)
    assert.is_false(taken)
    assert.truthy(reason:find("push_blob: 2 elements in no memory (NULL)", 1, true),
      reason)
    assert.same({ { 0.0, 1.0, 2.0 }, { 3.0, 4.0, 5.0 } },
      extension().converted(x, -1):totable())
    assert.same({ 4 }, extension().empty(4, -1):shape())
    local made, why = pcall(extension().no_dims)
    assert.is_false(made)
    assert.truthy(why:find("-1 dims, at most 12 are possible", 1, true), why)
    for _, gpu in ipairs { -2, 16 } do
      local ok, err = pcall(extension().empty, 4, gpu)
      assert.is_false(ok)
      assert.truthy(err:find("no GPU " .. gpu, 1, true), err)
    end
  end)

  it("has words for what it finds", function()
    assert.equal("float32 of shape [2, 3] on cpu", extension().text(mt.ones(2, 3)))
    assert.equal("string", extension().text "x")
    assert.same({ "bfloat16", 2 }, { extension().dtype(3) })
    assert.same({ "?", 0 }, { extension().dtype(99) })
    local ok, err = pcall(function() extension().matrix(mt.ones(3)) end)
    assert.is_false(ok)
    assert.truthy(err:find("bad argument #1 to 'matrix' (2 dims expected, got 1)", 1,
      true), err)
  end)

  it("refuses to write where autograd would not see it", function()
    local x = mt.ones({ 2 }, { requires_grad = true })
    local ok, err = pcall(function() extension().set(x, 3) end)
    assert.is_false(ok)
    assert.truthy(err:find "bad argument #1 to 'set' %(it requires grad", err)
    mt.no_grad(function() extension().set(x, 3) end)
    assert.same({ 3, 3 }, x:totable())
  end)

  it("still serves modules that were compiled for version 1", function()
    local old = extension().version_1()
    assert.equal(1, old)
  end)

  local on_gpu = devices.on_gpu(_ENV)

  on_gpu("knows GPUs", function()
    local x = mt.arange(6, { device = "cuda" }):view(2, 3)
    assert.equal("float32 of shape [3, 2] on cuda:0", extension().text(x:t()))
    local y = extension().contiguous(x:t())
    assert.equal("cuda:0", y:device())
    assert.is_true(y:equal(x:t()))
    assert.equal("cuda:0", extension().empty_like(x):device())
    assert.equal("cuda:0", extension().converted(mt.ones(2), 0):device())
    assert.equal("cpu", extension().converted(x, -1):device())
    assert.equal(0, extension().current())
    assert.is_true(extension().stream(0) == extension().stream(0))
    local s = mt.cuda.Stream()
    assert.is_true(extension().stream(0) ~= s:use(function()
      return extension().stream(0)
    end))
    assert.is_false((pcall(extension().stream, -1)))
  end)
end)

describe("an extension in CUDA", function()
  local loaded
  local LOAD_BLOB = [[mt.extension.load { name = "device_blob",
    sources = { "spec/support/device_blob.cu" } }]]

  local function blob()
    loaded = loaded or assert(load("local mt = ... return " .. LOAD_BLOB))(mt)
    return loaded
  end

  local with_nvcc = devices.on_gpu(_ENV, function()
    if not mt.extension.nvcc() then pending "no nvcc" end
  end)

  with_nvcc("lends memory of the GPU, and gets it back", function()
    collectgarbage()
    collectgarbage()
    local before = blob().released()
    local x = blob().count(1000)
    assert.equal("cuda:0", x:device())
    assert.is_true(x:equal(mt.arange(1000, { device = "cuda", dtype = "float32" })))
    local y = x:narrow(1, 11, 5)
    x:free()
    assert.same({ 10, 11, 12, 13, 14 }, y:totable())
    assert.equal(before, blob().released())
    y:free()
    assert.equal(before + 1, blob().released())
  end)

  with_nvcc("gets errors of launches and calls", function()
    local ok, err = pcall(blob().too_large)
    assert.is_false(ok)
    assert.truthy(err:find("count_kernel: invalid argument", 1, true)
      or err:find("count_kernel: invalid configuration", 1, true), err)
    ok, err = pcall(blob().exhaust)
    assert.is_false(ok)
    assert.truthy(err:find("cudaMalloc(&data, size_t(1) << 50): out of memory", 1,
      true), err)
    assert.equal(6.0, mt.ones({ 6 }, { device = "cuda" }):sum():item())
  end)

  with_nvcc("is named when it destroys the device", function()
    local r = shell.lua_run(([[
      local mt = require "mytensor"
      local blob = %s
      blob.wild(mt.ones({ 2 }, { device = "cuda" }))
      print(pcall(mt.cuda.synchronize))
      print((mt.ones(3) + 1):sum():item())
    ]]):format(LOAD_BLOB))
    assert.truthy(r.out:find("cuda:0 is lost: an illegal memory access was encountered "
      .. "in the kernel wild_kernel", 1, true), r.out .. r.err)
    assert.truthy(r.out:find("\n6.0\n", 1, true), r.out)
  end)
end)

describe("the examples of extensions", function()
  local function example(name)
    needs "c++"
    local here = folder()
    return shell.run(("MYTENSOR_CACHE=%s %s examples/extension/%s/%s.lua"):format(here,
      shell.lua_command(), name, name))
  end

  it("add vectors", function()
    local r = example "vector_add"
    assert.equal(0, r.code, r.err)
    local _, count = r.out:gsub("<Tensor shape=%[1000, 3%] on %u+>\tequal to x %+ y: "
      .. "true", "")
    assert.equal(devices.cuda and 2 or 1, count, r.out)
    assert.truthy(r.out:find("bad argument #2 to 'add' (float32 of shape [2] on cpu "
      .. "expected, got float32 of shape [3] on cpu)", 1, true), r.out)
  end)

  it("add a bias and activate, with a gradient", function()
    local r = example "bias_silu"
    assert.equal(0, r.code, r.err)
    local count = 0
    for difference in r.out:gmatch
      "c[pu][ud]a?: largest difference from %S+ %+ %S+ (%S+), gradient right" do
      count = count + 1
      assert.is_true(tonumber(difference) < 1e-14, r.out)
    end
    assert.equal(devices.cuda and 2 or 1, count, r.out)
  end)

  local function vector_add()
    return mt.extension.load { name = "vector_add", sources = {
      "examples/extension/vector_add/binding.c",
      "examples/extension/vector_add/kernel.cu" } }.add
  end

  it("are compiled by nvcc, too", function()
    needs "c++"
    if not mt.extension.nvcc() then pending "no nvcc" end
    local add = vector_add()
    assert.same({ 3, 3 }, add(mt.ones(2), mt.ones(2) * 2):totable())
    local here = folder()
    shell.write(here .. "/sum.cu", '#include "mytensor.h"\nMT_EXTENSION_OPEN(L) '
      .. "{ lua_pushinteger(L, ONE + TWO + MT_EXTENSION_CUDA); return 1; }\n")
    for two = 20, 21 do
      local r = run(here, ([[print(mt.extension.load { name = "sum",
        sources = { here .. "/sum.cu" }, flags = "-O1 -D ONE=100 -Wextra",
        cuda_flags = "-DTWO=%d" })]]):format(two))
      assert.equal(101 + two .. "\n", r.out, r.err)
    end
  end)

  devices.on_gpu(_ENV)("run on a GPU", function()
    needs "c++"
    if not mt.extension.nvcc() then pending "no nvcc" end
    local add = vector_add()
    local x, y = mt.randn({ 1000 }, { device = "cuda" }), mt.randn({ 1000 },
      { device = "cuda" })
    assert.is_true(add(x, y):equal(x + y))
    assert.equal(0, add(x:narrow(1, 1, 0), y:narrow(1, 1, 0)):numel())
  end)
end)
