-- spec/kernel_signature_spec.lua: what mt.cuda.kernel reads out of CUDA source and its
-- options, and the lines of messages: all that needs no GPU.

local mt = require "mytensor"
local reader = require "mytensor.kernel"
local expect = require "spec.support.expect"

local fails = expect.matches

-- Each parameter as a word: const float32*, unsigned int32, float32x4*.
local function signature(source, options)
  options = options or {}
  options.source = source
  local words = {}
  for i, p in ipairs(reader.describe(options).params) do
    words[i] = (p.constant and "const " or "") .. (p.unsigned and "unsigned " or "")
      .. p.type
      .. (p.width > 1 and "x" .. p.width or "") .. (p.pointer and "*" or "")
  end
  return table.concat(words, ", ")
end

describe("a kernel's signature", function()
  it("is read from the source", function()
    assert.equal("const float32*, float32*, int32", signature [[
      extern "C" __global__ void add(const float *x, float *y, int n) {}]])
    assert.equal("", signature "__global__ void f() {}")
    assert.equal("", signature "__global__ void f(void) {}")
  end)

  it("knows the numbers of C and CUDA", function()
    assert.equal("bool, int8, int8, uint8, int16, unsigned int16, int32, "
      .. "unsigned int32, unsigned int32, int64, int64, unsigned int64, "
      .. "unsigned int64, int64, float32, float64, float16, bfloat16", signature [[
      __global__ void f(bool a, char b, signed char c, unsigned char d, short e,
        unsigned short f, int g, unsigned h, unsigned int i, long j, long long k,
        unsigned long long l, size_t m, int64_t n, float o, double p, half q,
        __nv_bfloat16 r) {}]])
    assert.equal("int16, int64, int64, unsigned int64, int32, int8, int16, "
      .. "unsigned int16, int32, unsigned int32, unsigned int64, int32*, const int64",
      signature [[__global__ void f(short int a, long int b, int long long c,
        unsigned long d, signed e, int8_t f, int16_t g, uint16_t h, std::int32_t i,
        uint32_t j, uint64_t k, volatile int *l, const __grid_constant__ long m) {}]])
    assert.equal("float32x4*, const float16x2*, int32x3*", signature [[
      __global__ void f(float4 *a, const __half2 *b, int3 *c) {}]])
    assert.equal("uint8*, const void*, const bool*", signature
      "__global__ void f(uint8_t *a, const void *b, bool const *c) {}")
  end)

  it("looks through comments, attributes, other kernels and names of types", function()
    local source = [=[
      // __global__ void f(double no)
      #define REAL float
      typedef unsigned char byte; /* typedef int byte; */
      using index_t = long long;
      const char *text = "__global__ void f(bool no)";
      template <class T> __device__ T twice(T x) { return x + x; }
      __global__ void g(int a) {}
      static __launch_bounds__(256) __global__ void f(
          const REAL *__restrict__ x, // __restrict__ is no name
          [[maybe_unused]] byte *const m, index_t n = 1, NUMBER z[]) {}]=]
    local options = { name = "f", options = { "-DNUMBER=double" } }
    assert.equal("const float32*, uint8*, int64, float64*", signature(source, options))
    assert.equal("int32", signature(source, { name = "g" }))
    local made = reader.describe { source = source, name = "f",
      options = { "-DNUMBER=double" } }.source
    assert.truthy(made:find('\n      extern "C" +__launch_bounds__%(256%) __global__'))
    assert.equal(select(2, source:gsub("\n", "")), (select(2, made:gsub("\n", ""))))
  end)

  it("tells a parameter's name from a type", function()
    assert.equal("float32*, int32, unsigned int32, float16, const int64, float32",
      signature [[
      typedef float real;
      __global__ void f(float *x, int half, unsigned char4, half half2,
        long long const int8_t, real real4) {}]])
    assert.equal("float32, int32", signature "__global__ void f(float, int) {}")
  end)

  it("is not misled by numbers, strings, comments and values", function()
    assert.equal("int32", signature [==[
      __device__ int few = 1'000, hex = 0xFF'FF'FF, one = '1';
      #if 0
      don't
      #endif
      const char *text = R"(a " b)", *other = R"x(__global__ void g(bool no) )" )x";
      // goes on \
      __global__ void h(bool no) {}
      __global__ void f(int n) {}]==])
    assert.equal("float32, int32", signature
      "__global__ void f(float x = 1 < 2, int n = 3 > 2) {}")
  end)

  it("is that of the definition where there is a declaration, too", function()
    local source = "__global__ void f(int); __global__ void f(int n) {}"
    assert.equal("f(int n)", reader.describe { source = source }.text)
    assert.equal("f(int n)", reader.describe { source = source, name = "f" }.text)
  end)

  it("may follow attributes", function()
    for _, attribute in ipairs { "__launch_bounds__(256, 2)", "__maxnreg__(64)",
      "__cluster_dims__(2, 1, 1)", "__attribute__((noinline))" } do
      assert.equal("int32", signature(("__global__ void %s f(int n) {}"):format(
        attribute)))
    end
  end)

  it("does not come of a directive", function()
    assert.equal("int32", signature("#define MORE \\\n  __global__ void g(bool no) {}"
      .. "\n__global__ void f(int n) {}"))
  end)

  it("belongs to one function of extern \"C\" linkage that is not static", function()
    local made = reader.describe { source = "static\n#ifdef N\n#endif\n"
      .. "__global__ static void f(int n) {}" }.source
    assert.equal('extern "C"       \n#ifdef N\n#endif\n'
      .. "__global__        void f(int n) {}", made)
    for _, source in ipairs { 'extern "C" __global__ void f() {}',
      'extern  /* ! */ "C"\n__global__ void f() {}' } do
      assert.equal(source, reader.describe { source = source }.source)
    end
  end)

  it("is read in no time, whatever the source", function()
    local start = os.clock()
    assert.equal("int32", signature("typedef float " .. (" "):rep(20000) .. "\n a b;\n"
      .. "__global__ void f(int n) {}"))
    assert.equal("int32", signature(("// it's (\n1'000 '\n"):rep(20000)
      .. "__global__ void f(int n) {}"))
    assert.is_true(os.clock() - start < 2)
  end)

  it("can be told", function()
    assert.equal("const float32*, int32", signature("MAKE_KERNEL(f)", { name = "f",
      signature = "const float *x, int n" }))
    assert.equal("float64*", signature("__global__ void f(scalar_t *x) {}",
      { signature = "double *x" }))
    assert.equal("int64", signature("MAKE_KERNEL(f) __global__ void g() {}",
      { name = "f", signature = "int64_t n" }))
  end)

  it("that cannot be called is an error", function()
    for source, message in pairs {
      ["int x;"] = "it has no __global__ function",
      ["__global__ void f() {} __global__ void g() {}"] = "there are: f, g",
      ["template <class T> __global__ void f(int n) {}"] = "f is a template",
      ["__global__ void f(int a, matrix b) {}"] = "f: parameter 2, 'matrix b': unknown "
        .. "type 'matrix'",
      ["__global__ void f(float **x) {}"] = "parameter 1, 'float %*%*x': pointers to "
        .. "pointers",
      ["__global__ void f(float &x) {}"] = "only plain types",
      ["__global__ void f(std::array<int, 3> x) {}"] = "only plain types",
      ["__global__ void f(float4 x) {}"] = "only numbers and pointers",
      ["__global__ void f(void x) {}"] = "only numbers and pointers",
      ["__global__ void f(long double x) {}"] = "unknown type",
    } do
      fails("mt%.cuda%.kernel: .*" .. message, reader.describe, { source = source })
    end
    local many = "int a" .. (", int a"):rep(63)
    assert.equal(64, select(2, signature("__global__ void f(" .. many .. ") {}")
      :gsub("int32", "")))
    fails("^mt.cuda.kernel: f has 65 parameters, at most 64", reader.describe,
      { source = "__global__ void f(" .. many .. ", int b) {}" })
    local name = ("x"):rep(63)
    local longest = "__global__ void " .. name .. "() {}"
    assert.equal(name, reader.describe { source = longest }.name)
    fails("^mt.cuda.kernel: the name x+ is too long: more than 63", reader.describe,
      { source = "__global__ void x" .. name .. "() {}" })
    fails("no kernel 'h'; there are: f", reader.describe,
      { source = "__global__ void f() {}", name = "h" })
  end)
end)

describe("the options of mt.cuda.kernel", function()
  it("are checked", function()
    local source = "__global__ void f() {}"
    fails("table with source expected, got nil",
      function() mt.cuda.kernel() end)
    fails("source = %[%[...%]%] is missing", mt.cuda.kernel, {})
    fails("unknown option 'blocks'", mt.cuda.kernel, { source = source, blocks = 1 })
    fails("source: string expected, got number", mt.cuda.kernel, { source = 1 })
    fails("grid: number, list of up to three, or function expected, got string",
      mt.cuda.kernel, { source = source, grid = "1" })
    fails("options%[1%]: string expected", mt.cuda.kernel, { source = source,
      options = { 1 } })
    fails("the source holds a zero byte", mt.cuda.kernel, { source = "\0" })
    fails("options%[1%] holds a zero byte", mt.cuda.kernel, { source = source,
      options = { "-DA=\0" } })
  end)

  it("lead to a GPU", function()
    if mt.cuda.is_available() then pending "there is a GPU" end
    fails("^spec/kernel_signature_spec.lua:%d+: mt.cuda.kernel: no device", function()
      mt.cuda.kernel { source = "__global__ void f() {}" }
    end)
  end)
end)

it("mt.info() tells whether kernels can be compiled", function()
  assert.equal(mt.cuda.is_available(), mt.info().libraries.nvrtc == "found")
end)

it("messages of the compiler get the lines of the script", function()
  local log = "k.cu(3): error: no\n  int x\n      ^\nk.cu(12): warning: odd\n"
    .. "/a/k.cu(3): error: else\n"
  assert.equal("s.lua:13: error: no\n  int x\n      ^\ns.lua:22: warning: odd\n"
    .. "/a/k.cu(3): error: else", reader.with_lines(log, "k.cu", "s.lua", 10))
  assert.equal("k.cu:3: error: no", reader.with_lines("k.cu(3): error: no", "k.cu"))
end)
