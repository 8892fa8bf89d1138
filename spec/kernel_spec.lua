-- spec/kernel_spec.lua: mt.cuda.kernel: CUDA source in Lua, launched.

local devices = require "spec.support.devices"
local idxfile = require "spec.support.idxfile"
local mt = require "mytensor"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local fails = expect.matches

local on_gpu = devices.on_gpu(_ENV)

local add_source = [[
__global__ void add(const float *x, const float *y, float *z, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}]]
local CUDA = { device = "cuda" }

describe("mt.cuda.kernel", function()
  local made
  local function add()
    made = made or mt.cuda.kernel { source = add_source }
    return made
  end

  on_gpu("adds vectors", function()
    for _, n in ipairs { 1, 255, 256, 257, 100003 } do
      local x, y = mt.randn({ n }, CUDA), mt.randn({ n }, CUDA)
      local z = mt.empty({ n }, CUDA)
      assert.equal(0, select("#", add()(x, y, z, n)))
      assert.is_true(z:equal(x + y))
    end
    assert.equal("<Kernel add(const float *x, const float *y, float *z, int64_t n)>",
      tostring(add()))
  end)

  on_gpu("launches nothing for empty tensors", function()
    local x = mt.empty({ 0 }, CUDA)
    add()(x, x, x:clone(), 0)
  end)

  on_gpu("takes a grid, a block and shared memory, fixed or by functions", function()
    local reverse = mt.cuda.kernel {
      source = [[
        __global__ void reverse(const int *x, int *y) {
          extern __shared__ int s[];
          int i = threadIdx.y * blockDim.x + threadIdx.x, n = blockDim.x * blockDim.y;
          s[i] = x[blockIdx.x * n + i];
          __syncthreads();
          y[blockIdx.x * n + i] = s[n - 1 - i];
        }]],
      grid = function(x) return x:size(1) end,
      block = { 16, 4 },
      shared = function() return 64 * 4 end,
    }
    local x = mt.arange(192, { dtype = "int32", device = "cuda" }):view(3, 64)
    local y = mt.zeros({ 3, 64 }, { dtype = "int32", device = "cuda" })
    reverse(x, y)
    assert.is_true(y:equal(x:flip(2)))
    y:zero_()
    reverse(x, y, { grid = 2 })
    assert.same({ 0, 63, 0 }, { y[{ 3, 1 }]:item(), y[{ 1, 1 }]:item(),
      y[{ 3, 64 }]:item() })
    local z = mt.zeros({ 192 }, { dtype = "int32", device = "cuda" })
    reverse(x, z, { grid = { 6, 1, 1 }, block = 32, shared = 128 })
    assert.is_true(z:view(6, 32):equal(x:view(6, 32):flip(2)))
    -- more than what a launch gets unasked
    reverse(x, y, { shared = 200 * 1024 })
    assert.is_true(y:equal(x:flip(2)))
  end)

  on_gpu("passes numbers of every type", function()
    local all = mt.cuda.kernel {
      source = [[
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        __global__ void all(double *y, bool a, signed char b, uint8_t c, short d,
            uint16_t e, int f, unsigned g, int64_t h, uint64_t i, float j, double k,
            half l, __nv_bfloat16 m) {
          y[0] = a, y[1] = b, y[2] = c, y[3] = d, y[4] = e, y[5] = f, y[6] = g;
          y[7] = h, y[8] = i, y[9] = j, y[10] = k, y[11] = __half2float(l);
          y[12] = __bfloat162float(m);
        }]],
      grid = 1, block = 1,
    }
    local y = mt.zeros({ 13 }, { dtype = "float64", device = "cuda" })
    all(y, true, -128, 255, -32768, 65535, -2147483648, 4294967295, -(1 << 53), 1 << 53,
      0.1, 0.1, 65504, 1.0)
    assert.same({ 1.0, -128.0, 255.0, -32768.0, 65535.0, -2147483648.0, 4294967295.0,
      -2.0 ^ 53, 2.0 ^ 53, string.unpack("f", string.pack("f", 0.1)), 0.1,
      65504.0, 1.0 },
      y:totable())
    all(y, false, 1.0, 0, 0, 0, 0, 0, 0, 0, math.huge, 0, 0, 0) -- a whole float
    assert.equal(math.huge, y[10]:item())
    local function with(at, value)
      local list = { y, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
      list[at] = value
      return function() all(table.unpack(list, 1, 14)) end
    end
    for at, case in pairs {
      [2] = { 1, "bool a: boolean expected, got number" },
      [3] = { 128, "signed char b: 128 is out of range %-128 .. 127" },
      [4] = { -1, "uint8_t c: %-1 is out of range 0 .. 255" },
      [5] = { 1.5, "short d: integer expected, got 1.5" },
      [6] = { 65536, "uint16_t e: 65536 is out of range 0 .. 65535" },
      [7] = { 1 << 31, "int f: 2147483648 is out of range" },
      [8] = { 1 << 32, "unsigned g: 4294967296 is out of range 0 .. 4294967295" },
      [9] = { "1", "int64_t h: integer expected, got string" },
      [10] = { -1, "uint64_t i: %-1 is out of range 0 .. 9223372036854775807" },
      [11] = { 1e39, "float j: 1e%+39 is out of range" },
      [12] = { "x", "double k: number expected, got string" },
      [13] = { 65505, "half l: 65505 is out of range" },
      [14] = { mt.ones(1), "__nv_bfloat16 m: number expected, got tensor" },
    } do
      fails(("bad argument #%d to 'all' %%("):format(at) .. case[2], with(at, case[1]))
    end
  end)

  on_gpu("checks tensors against the signature", function()
    local x, z = mt.ones({ 4 }, CUDA), mt.zeros({ 4 }, CUDA)
    fails("^spec/kernel_spec%.lua:%d+: add: 4 arguments expected, got 3", function()
      add()(x, x, z)
    end)
    fails("bad argument #1 to 'add' %(const float %*x: tensor expected, got number",
      function() add()(1, x, z, 4) end)
    fails("tensor expected, got nil", function() add()(x, nil, z, 4) end)
    fails("#2 .*tensor on a GPU expected, got one on cpu", function()
      add()(x, mt.ones(4), z, 4)
    end)
    fails("#3 .*float %*z: float32 expected, got a tensor of float64", function()
      add()(x, x, z:double(), 4)
    end)
    fails("#1 .*contiguous tensor expected, got a view of shape %[2, 2%]", function()
      add()(x:view(2, 2):t(), x, z, 4)
    end)
    fails("contiguous", function() add()(x, x, z:narrow(1, 1, 1):expand(4), 4) end)
    local freed = mt.ones({ 4 }, CUDA)
    freed:free()
    fails("tensor expected, got freed tensor", function() add()(freed, x, z, 4) end)
    local gone = mt.zeros({ 4 }, CUDA)
    fails("tensor expected, got freed tensor", function()
      add()(x, x, gone, 4, { grid = function() gone:free() return 1 end })
    end)
    fails("add: unknown option 'stream'; there are grid, block, shared", function()
      add()(x, x, z, 4, { stream = 1 })
    end)
    local wide = mt.cuda.kernel { source = [[__global__ void wide(float4 *x) {
      x[blockIdx.x * blockDim.x + threadIdx.x].y = 7; }]], block = 1 }
    local y = mt.zeros({ 8 }, CUDA)
    wide(y)
    assert.same({ 0, 7, 0, 0, 0, 7, 0, 0 }, y:totable())
    fails("shape %[6%] has 6 elements, no multiple of 4", function()
      wide(mt.zeros({ 6 }, CUDA))
    end)
    fails("do not begin at a multiple of 16 bytes", function()
      wide(y:narrow(1, 2, 4))
    end)
  end)

  on_gpu("has the parameters that the compiled kernel has", function()
    local source = "__global__ void few(int *x, int half) { *x = half; }"
    local x = mt.zeros({ 1 }, { dtype = "int32", device = "cuda" })
    mt.cuda.kernel { source = source }(x, 5)
    assert.equal(5, x:item())
    for signature, message in pairs {
      ["int *x"] = "few has 2 parameters, by its signature 1",
      ["int *x, int n, int m"] = "few has 2 parameters, by its signature 3",
      ["int *x, double n"] = "parameter 2 of few has 4 bytes, by its signature 8",
    } do
      fails("mt%.cuda%.kernel: " .. message, mt.cuda.kernel, { source = source,
        signature = signature })
    end
  end)

  on_gpu("checks the shape of a launch", function()
    local x = mt.ones({ 4 }, CUDA)
    local function launch(options)
      return function() add()(x, x, x:clone(), 4, options) end
    end
    fails("add: a block of 1025 threads in x, not 1 .. 1024", launch { block = 1025 })
    fails("add: a block of 0 threads", launch { grid = 1, block = 0 })
    fails("add: a block of 32 x 32 x 2 = 2048 threads",
      launch { block = { 32, 32, 2 } })
    fails("add: a block of 65 threads in z", launch { block = { 1, 1, 65 } })
    fails("add: a grid of 65536 blocks in y", launch { grid = { 1, 65536 } })
    fails("add: grid: 2147483648 is out of range", launch { grid = 1 << 31 })
    fails("add: grid: %-1 is out of range", launch { grid = -1 })
    fails("add: grid: integer expected, got 1.5", launch { grid = 1.5 })
    fails("add: grid: 1 to 3 numbers expected", launch { grid = { 1, 1, 1, 1 } })
    fails("add: grid: integer or list", launch { grid = "1" })
    fails("add: grid: .*got nil", launch { grid = function() return nil end })
    fails("mine", launch { grid = function() error "mine" end })
    fails("add: 1048576 bytes of dynamic and 0 of static shared memory, more than",
      launch { shared = 1 << 20 })
    fails("add: shared: one number", launch { shared = { 1, 2 } })
    launch {}()
  end)

  on_gpu("gives the compiler's messages with lines of this file", function()
    local line = debug.getinfo(1, "l").currentline
    local err = fails("mt%.cuda%.kernel: bad%.cu does not compile\n", function()
      mt.cuda.kernel { source = [[
        __global__ void bad(float *x) {
          x[0] = nonsense;
        }]] }
    end)
    assert.truthy(err:find(("spec/kernel_spec.lua:%d: error: identifier \"nonsense\"")
      :format(line + 4), 1, true), err)
    err = fails("does not compile", mt.cuda.kernel,
      { source = add_source .. "\nint q = ;" })
    assert.truthy(err:find("add.cu:5: error", 1, true), err)
    fails("add.cu has no kernel extern", mt.cuda.kernel, { source =
      "#define add sum\n" .. add_source, name = "add" })
    fails("NVRTC_ERROR_INVALID_OPTION", mt.cuda.kernel, { source = add_source,
      options = { "--no-such" } })
  end)

  on_gpu("knows the toolkit's headers, and those of -I", function()
    local folder = idxfile.folder()
    finally(function() idxfile.remove(folder) end)
    local function make()
      local k = mt.cuda.kernel { source = [[
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        #include <mma.h>
        #include <stdint.h>
        #include <cooperative_groups.h>
        #include "value.h"
        __global__ void value(int *x) { *x = VALUE + ONE; }]],
        options = { "-I" .. folder, "-DONE=1" } }
      local x = mt.zeros({ 1 }, { dtype = "int32", device = "cuda" })
      k(x)
      return x:item()
    end
    shell.write(folder .. "/value.h", "#define VALUE 41")
    assert.equal(42, make())
    shell.write(folder .. "/value.h", "#define VALUE 42")
    assert.equal(43, make())
    for i = 1, 2 do -- a macro names the file
      shell.write(folder .. "/other.h", "#define OTHER " .. i)
      local k = mt.cuda.kernel { source = "#define FILE <other.h>\n#include FILE\n"
        .. "__global__ void other(int *x) { *x = OTHER; }",
        options = { "-I" .. folder } }
      local x = mt.zeros({ 1 }, { dtype = "int32", device = "cuda" })
      k(x)
      assert.equal(i, x:item())
    end
  end)

  on_gpu("runs on the current stream, and in order", function()
    local s = mt.cuda.Stream()
    local n = 1 << 20
    s:use(function()
      local x, z = mt.ones({ n }, CUDA), mt.empty({ n }, CUDA)
      for _ = 1, 50 do
        add()(x, x, z, n)
        x, z = z, x
      end
      assert.equal(2.0 ^ 50, x[n]:item())
    end)
  end)

  on_gpu("respects autograd", function()
    local x = mt.ones({ 3 }, { device = "cuda", requires_grad = true })
    local ones = mt.ones({ 3 }, CUDA)
    fails("float %*z: it requires grad, and autograd cannot record", function()
      add()(ones, ones, x, 3)
    end)
    mt.no_grad(function() add()(ones, ones, x, 3) end)
    assert.same({ 2, 2, 2 }, x:totable())
    local y = x * 1
    local square = y * y
    fails("requires grad", function() add()(ones, ones, y:narrow(1, 1, 3), 3) end)
    mt.no_grad(function() add()(ones, ones, y, 3) end)
    fails("changed in place", function() square:sum():backward() end)
  end)

  on_gpu("has gradients by mt.Function", function()
    local cube = mt.cuda.kernel { source = [[
      __global__ void cube(const double *x, double *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i] * x[i];
      }]] }
    local Cube = mt.Function("Cube", {
      forward = function(ctx, x)
        local y = mt.empty(x:shape(), { dtype = "float64", device = "cuda" })
        ctx:save(x)
        cube(x, y, x:numel())
        return y
      end,
      backward = function(ctx, dy)
        local x = ctx:saved()
        return dy * x * x * 3
      end,
    })
    local x = mt.randn({ 5 },
      { dtype = "float64", device = "cuda", requires_grad = true })
    assert.is_true(mt.gradcheck(function(v) return Cube(v) end, { x }))
  end)

  on_gpu("is captured in graphs", function()
    local scale = mt.cuda.kernel { source = [[
      __global__ void scale(const float *x, float *y, float by, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * by;
      }]] }
    local step <close> = mt.cuda.graph(function(x)
      local y = mt.empty({ x:numel() }, CUDA)
      scale(x + 1, y, 3, x:numel())
      return y * 2
    end)
    for i = 1, 5 do
      local x = mt.arange(1000, { dtype = "float32", device = "cuda" }) * i
      assert.is_true(step(x):equal((x + 1) * 6))
    end
  end)

  on_gpu("is compiled once, and found on disk by the next process", function()
    local folder = idxfile.folder()
    finally(function() idxfile.remove(folder) end)
    local code = ([[
      local mt = require "mytensor"
      local clock = os.clock()
      local k = mt.cuda.kernel { source = %q }
      local x = mt.ones({ 4 }, { device = "cuda" })
      local z = mt.zeros({ 4 }, { device = "cuda" })
      k(x, x, z, 4)
      print(z:sum():item())
    ]]):format(add_source)
    local function run(env)
      local r = shell.lua_run(code, { env = env })
      assert.equal("8.0\n", r.out, r.err)
      return r.err
    end
    local function files()
      local list = shell.run("ls -A " .. folder).out
      return select(2, list:gsub("\n", "")), list:match "[^\n]+"
    end
    local env = "MYTENSOR_CACHE=" .. folder
    run(env)
    local n, name = files()
    assert.equal(1, n)
    local path = folder .. "/" .. name
    local good = shell.read(path)
    run(env)
    assert.equal(good, shell.read(path))
    for _, damaged in ipairs { good:sub(1, #good // 2), "", good .. "x",
      (good:gsub("^(.*)...$", "%1abc")), ("x"):rep(#good) } do
      shell.write(path, damaged)
      run(env)
      assert.equal(good, shell.read(path))
    end
    run "MYTENSOR_CACHE=off"
    run "MYTENSOR_CACHE=/dev/null/nowhere"
    assert.equal(1, (files()))
    local several = ("%s %s -e %s & "):format(env, shell.lua_command(),
      shell.quote(code))
    os.remove(path)
    local r = shell.run(several:rep(4) .. " wait")
    assert.equal(("8.0\n"):rep(4), r.out, r.err)
    assert.equal(good, shell.read(path))
    assert.equal(1, (files()))
  end)

  on_gpu("that writes out of bounds loses the device, is named, and the CPU goes on",
    function()
      local r = shell.lua_run [[
        local mt = require "mytensor"
        local k = mt.cuda.kernel { source = "__global__ void wild(float *x) "
          .. "{ x[1ll << 40] = 1; }" }
        local x = mt.ones({ 4 }, { device = "cuda" })
        mt.cuda.synchronize()
        k(x)
        print(pcall(mt.cuda.synchronize))
        print(pcall(function() return x + 1 end))
        print(pcall(k, x))
        print(pcall(mt.cuda.kernel, { source = "__global__ void f() {}" }))
        print((mt.ones(3) + 1):sum():item())
      ]]
      local lines = {}
      for line in r.out:gmatch "[^\n]+" do lines[#lines + 1] = line end
      assert.equal(5, #lines, r.out .. r.err)
      for i = 1, 4 do
        assert.truthy(lines[i]:find("^false\t.*cuda:0 is lost: an illegal memory "
          .. "access was encountered in the kernel wild; restart"), lines[i])
      end
      assert.equal("6.0", lines[5])
      assert.equal(0, r.code, r.err)
      r = shell.lua_run([[
        local mt = require "mytensor"
        local k = mt.cuda.kernel { source = "__global__ void wild(float *x) "
          .. "{ x[1ll << 40] = 1; }" }
        k(mt.ones({ 4 }, { device = "cuda" }))
      ]], { env = "MYTENSOR_SYNC=1" })
      assert.truthy(r.err:find("wild: cuda:0 is lost: an illegal memory access", 1,
        true), r.err)
    end)
end)

describe("examples/tensor_core.lua", function()
  on_gpu("multiplies by Tensor Cores", function()
    local r = shell.run(shell.lua_command() .. " examples/tensor_core.lua 256")
    assert.equal(0, r.code, r.err)
    assert.truthy(r.out:find "^256 x 256: largest difference", r.out)
  end)

  it("says that it needs a GPU", function()
    if mt.cuda.is_available() then pending "there is a GPU" end
    local r = shell.run(shell.lua_command() .. " examples/tensor_core.lua")
    assert.equal(0, r.code, r.err)
    assert.truthy(r.out:find "^this example needs a GPU: ", r.out)
  end)
end)
