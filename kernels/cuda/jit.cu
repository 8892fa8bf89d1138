// kernels/cuda/jit.cu -- kernels compiled while the program runs: NVRTC makes code for the
// device, the driver loads and launches it. Neither library is linked.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/jit.cuh"
#include "kernels/cuda/jit_headers.cuh"

struct mt_function {
  std::string name;
  CUfunction handle;
  int device;
  unsigned max_threads;        // in a block, with the registers that it takes
  unsigned shared_bytes;       // static
  std::atomic<unsigned> asked; // dynamic shared memory that the driver was asked for
};

struct mt_program {
  std::string name;
  CUmodule module;
  int device;
  std::mutex lock;
  std::map<std::string, std::unique_ptr<mt_function>> functions;
};

namespace {

constexpr int max_gpus = 16;

// ---- the compiler -----------------------------------------------------------------------
struct {
  int (*nvrtcVersion)(int *major, int *minor);
  int (*nvrtcCreateProgram)(void **program, const char *source, const char *name,
                            int headers, const char *const *header,
                            const char *const *header_name);
  int (*nvrtcDestroyProgram)(void **program);
  int (*nvrtcCompileProgram)(void *program, int n, const char *const *options);
  int (*nvrtcGetCUBINSize)(void *program, size_t *bytes);
  int (*nvrtcGetCUBIN)(void *program, char *code);
  int (*nvrtcGetProgramLogSize)(void *program, size_t *bytes);
  int (*nvrtcGetProgramLog)(void *program, char *log);
  const char *(*nvrtcGetErrorString)(int result);
} rtc;
constexpr int rtc_memory = 1, rtc_option = 5, rtc_compilation = 6; // of nvrtcResult

std::string library_error;

std::string beside_plugin() {
  Dl_info self;
  if (!dladdr(reinterpret_cast<void *>(&jit_suspects), &self) || !self.dli_fname)
    return "";
  const std::string file = self.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

const char *const library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// The file that is NVRTC; "": only the loader may know. What was compiled before can be used
// without it, and opening it takes 6 ms.
const std::string &library_path() {
  static const std::string found = [] {
    std::string folders;
    if (const char *path = getenv("LD_LIBRARY_PATH")) folders = path;
    if (const char *home = getenv("CUDA_HOME"))
      folders += ":" + std::string(home) + "/lib64";
    folders += ":/usr/local/cuda/lib64:/usr/local/cuda/targets/x86_64-linux/lib:"
               "/usr/lib/x86_64-linux-gnu:/usr/lib64:" +
               beside_plugin();
    for (const char *name : library_names)
      for (size_t at = 0, end; at <= folders.size(); at = end + 1) {
        end = std::min(folders.find(':', at), folders.size());
        const std::string path = folders.substr(at, end - at) + "/" + name;
        if (path[0] == '/' && end > at && access(path.c_str(), R_OK) == 0) return path;
      }
    return std::string();
  }();
  return found;
}

void *open_library() {
  const int how = RTLD_LAZY | RTLD_LOCAL;
  if (!library_path().empty())
    if (void *library = dlopen(library_path().c_str(), how)) return library;
  for (const char *name : library_names)
    if (void *library = dlopen(name, how)) return library;
  library_error = "libnvrtc.so.13 (or 12) was not found (looked in the loader's path, "
                  "$CUDA_HOME/lib64, /usr/local/cuda/lib64 and beside the plugin)";
  return nullptr;
}

bool load_library() {
  static const bool loaded = [] {
    void *library = open_library();
    if (!library) return false;
#define LOAD(name)                                                        \
  rtc.name = reinterpret_cast<decltype(rtc.name)>(dlsym(library, #name)); \
  if (!rtc.name) {                                                        \
    library_error = "NVRTC has no " #name;                                \
    return false;                                                         \
  }
    LOAD(nvrtcVersion)
    LOAD(nvrtcCreateProgram)
    LOAD(nvrtcDestroyProgram)
    LOAD(nvrtcCompileProgram)
    LOAD(nvrtcGetCUBINSize)
    LOAD(nvrtcGetCUBIN)
    LOAD(nvrtcGetProgramLogSize)
    LOAD(nvrtcGetProgramLog)
    LOAD(nvrtcGetErrorString)
#undef LOAD
    return true;
  }();
  return loaded;
}

// ---- the driver -------------------------------------------------------------------------
#define DRIVER_FUNCTIONS(X) \
  X(cuModuleLoadData)       \
  X(cuModuleGetFunction)    \
  X(cuFuncGetAttribute)     \
  X(cuFuncSetAttribute)     \
  X(cuLaunchKernel)

struct {
#define DECLARE(name) decltype(&::name) name;
  DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
} driver;

void *driver_function(const char *name, unsigned since) {
  void *p = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion(name, &p, since, cudaEnableDefault, &found);
#else
  (void)since;
  const cudaError_t e = cudaGetDriverEntryPoint(name, &p, cudaEnableDefault, &found);
#endif
  if (e == cudaSuccess && found == cudaDriverEntryPointSuccess) return p;
  cudaGetLastError();
  library_error = std::string("the NVIDIA driver has no ") + name;
  return nullptr;
}

bool load_driver() {
  static const bool loaded = [] {
#define LOAD(name)                                                            \
  driver.name =                                                               \
      reinterpret_cast<decltype(driver.name)>(driver_function(#name, 12000)); \
  if (!driver.name) return false;
    DRIVER_FUNCTIONS(LOAD)
#undef LOAD
    return true;
  }();
  return loaded;
}

const char *unavailable() {
  const bool found = !library_path().empty() || load_library();
  return found && load_driver() ? nullptr : library_error.c_str();
}

// The driver's numbers of errors are the runtime's.
#define DRIVER_TRY(call)                                             \
  do {                                                               \
    const CUresult driver_try = (call);                              \
    if (driver_try != CUDA_SUCCESS)                                  \
      return cuda_fail(static_cast<cudaError_t>(driver_try), #call); \
  } while (0)

// ---- what a device can ------------------------------------------------------------------
struct device_limits {
  int major, minor, shared; // compute capability; bytes that a block may ask for
};

mt_status limits_of(int device, device_limits *limits) {
  static device_limits known[max_gpus];
  static std::once_flag once[max_gpus];
  std::call_once(once[device], [device] {
    device_limits l = {};
    cudaDeviceGetAttribute(&l.major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&l.minor, cudaDevAttrComputeCapabilityMinor, device);
    cudaDeviceGetAttribute(&l.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    known[device] = l;
  });
  *limits = known[device];
  return limits->major ? MT_OK
                       : cuda_fail(cudaGetLastError(), "cudaDeviceGetAttribute");
}

// ---- compiling --------------------------------------------------------------------------

// Does an option begin with one of two spellings?
bool has_option(const char *const *options, int n, const char *a, const char *b) {
  for (int i = 0; i < n; i++)
    if (!strncmp(options[i], a, strlen(a)) || !strncmp(options[i], b, strlen(b)))
      return true;
  return false;
}

// From 9.0 on with what only this architecture has: the code runs nowhere else.
std::string architecture(const device_limits &l) {
  return "--gpu-architecture=sm_" + std::to_string(l.major * 10 + l.minor) +
         (l.major >= 9 ? "a" : "");
}

std::vector<std::string> all_options(const device_limits &limits,
                                     const char *const *options, int n) {
  std::vector<std::string> all;
  if (!has_option(options, n, "-arch", "--gpu-arch"))
    all.push_back(architecture(limits));
  if (!has_option(options, n, "-std", "--std")) all.push_back("--std=c++17");
  all.push_back(std::string("--pre-include=") + header_names[0]);
  all.insert(all.end(), options, options + n);
  return all;
}

std::string compiler_identity() {
  struct stat info;
  int major = 0, minor = 0;
  if (stat(library_path().c_str(), &info) == 0)
    return library_path() + " " + std::to_string(info.st_size) + " " +
           std::to_string(info.st_mtime);
  if (load_library()) rtc.nvrtcVersion(&major, &minor);
  return "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
}

// False: another compilation may give something else.
bool key_of(const std::string &name, const std::string &source,
            const std::vector<std::string> &all, const char *const *options, int n,
            std::string *key) {
  static std::atomic<unsigned> count;
  *key = compiler_identity();
  for (const std::string &option : all) *key += "\n" + option;
  *key += std::string("\n") + fixed_width + limits + name + "\n" +
          std::to_string(source.size()) + "\n" + source;
  if (jit_included(source, options, n, key)) return true;
  *key += "\n" + std::to_string(count++);
  return false;
}

// One of NVRTC's programs.
struct rtc_program {
  void *p = nullptr;
  ~rtc_program() {
    if (p) rtc.nvrtcDestroyProgram(&p);
  }
};

mt_status rtc_fail(int result, const std::string &name) {
  if (result == rtc_compilation)
    return cuda_fail_text(MT_EARG, "%s does not compile", name.c_str());
  return cuda_fail_text(result == rtc_memory ? MT_EMEMORY : MT_EARG, "%s: %s",
                        name.c_str(), rtc.nvrtcGetErrorString(result));
}

mt_status compile_source(const std::string &name, const std::string &source,
                         const std::vector<std::string> &all, std::string *code,
                         std::string *log) {
  if (!load_library()) return cuda_fail_text(MT_EDEVICE, "%s", library_error.c_str());
  rtc_program program;
  std::vector<const char *> words;
  for (const std::string &option : all) words.push_back(option.c_str());
  for (const std::string &option : jit_toolkit_folders(beside_plugin()))
    words.push_back(option.c_str());
  int result = rtc.nvrtcCreateProgram(&program.p, source.c_str(), name.c_str(),
                                      nheaders, headers, header_names);
  if (result) return rtc_fail(result, name);
  result = rtc.nvrtcCompileProgram(program.p, int(words.size()), words.data());
  const auto minimal = std::find(all.begin(), all.end(), "--minimal");
  if (result == rtc_option && minimal != all.end()) { // an older compiler
    words.erase(words.begin() + (minimal - all.begin()));
    result = rtc.nvrtcCompileProgram(program.p, int(words.size()), words.data());
  }
  size_t bytes = 0;
  if (!rtc.nvrtcGetProgramLogSize(program.p, &bytes) && bytes > 1) {
    log->resize(bytes);
    if (rtc.nvrtcGetProgramLog(program.p, &(*log)[0])) log->clear();
    log->resize(strlen(log->c_str()));
  }
  if (result) return rtc_fail(result, name);
  result = rtc.nvrtcGetCUBINSize(program.p, &bytes);
  if (!result && bytes == 0)
    return cuda_fail_text(MT_EARG, "%s: the options name no real architecture (sm_90)",
                          name.c_str());
  if (!result) {
    code->resize(bytes);
    result = rtc.nvrtcGetCUBIN(program.p, &(*code)[0]);
  }
  return result ? rtc_fail(result, name) : MT_OK;
}

// ---- programs ---------------------------------------------------------------------------
struct {
  std::mutex lock;
  std::map<std::string, std::unique_ptr<mt_program>> programs; // by key
} loaded[max_gpus];

mt_program *find_program(int device, const std::string &key) {
  std::lock_guard<std::mutex> hold(loaded[device].lock);
  const auto at = loaded[device].programs.find(key);
  return at == loaded[device].programs.end() ? nullptr : at->second.get();
}

mt_status load_program(int device, const std::string &name, const std::string &key,
                       const std::string &code, mt_program **program) {
  std::lock_guard<std::mutex> hold(loaded[device].lock);
  std::unique_ptr<mt_program> &at = loaded[device].programs[key];
  if (!at) {
    CUmodule module = nullptr;
    const CUresult result = driver.cuModuleLoadData(&module, code.data());
    if (result != CUDA_SUCCESS) {
      loaded[device].programs.erase(key);
      return cuda_fail(static_cast<cudaError_t>(result), "cuModuleLoadData");
    }
    at.reset(new mt_program());
    at->name = name, at->module = module, at->device = device;
  }
  *program = at.get();
  return MT_OK;
}

mt_status compile_program(int device, const std::string &name, const char *source,
                          const char *const *options, int n, mt_program **program,
                          std::string *log) {
  device_limits limits;
  if (const mt_status s = cuda_device_api.open(device)) return s;
  if (const char *reason = unavailable())
    return cuda_fail_text(MT_EDEVICE, "%s", reason);
  if (const mt_status s = limits_of(device, &limits)) return s;
  const std::vector<std::string> all = all_options(limits, options, n);
  std::string key, code;
  const bool lasts = key_of(name, source, all, options, n, &key);
  if ((*program = find_program(device, key))) return MT_OK;
  if (lasts && jit_cache_read(key, &code) &&
      load_program(device, name, key, code, program) == MT_OK)
    return MT_OK;
  if (const mt_status s = compile_source(name, source, all, &code, log)) return s;
  if (lasts) jit_cache_write(key, code, log);
  return load_program(device, name, key, code, program);
}

mt_status compile(int device, const char *name, const char *source,
                  const char *const *options, int noptions, mt_program **program,
                  char **log) {
  std::string text;
  mt_status status;
  *program = nullptr;
  if (log) *log = nullptr;
  try {
    status = compile_program(device, name, source, options, noptions, program, &text);
  } catch (const std::bad_alloc &) {
    return cuda_fail_text(MT_EMEMORY, "%s: out of memory", name);
  }
  if (log && !text.empty()) *log = strdup(text.c_str());
  return status;
}

// ---- kernels ----------------------------------------------------------------------------

mt_status attribute(const mt_function *f, CUfunction_attribute name, unsigned *value) {
  int n = 0;
  DRIVER_TRY(driver.cuFuncGetAttribute(&n, name, f->handle));
  return *value = unsigned(n), MT_OK;
}

mt_status new_function(mt_program *program, const char *name,
                       std::unique_ptr<mt_function> *made) {
  if (const mt_status s = cuda_device_api.open(program->device)) return s;
  std::unique_ptr<mt_function> f(new mt_function());
  f->name = name, f->device = program->device;
  const CUresult result = driver.cuModuleGetFunction(&f->handle, program->module, name);
  if (result == CUDA_ERROR_NOT_FOUND)
    return cuda_fail_text(MT_EARG, "%s has no kernel extern \"C\" __global__ void %s",
                          program->name.c_str(), name);
  DRIVER_TRY(result);
  // asked for now, they also make a driver that loads lazily do so before a capture
  if (const mt_status s =
          attribute(f.get(), CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &f->max_threads))
    return s;
  if (const mt_status s =
          attribute(f.get(), CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &f->shared_bytes))
    return s;
  *made = std::move(f);
  return MT_OK;
}

mt_status function(mt_program *program, const char *name, mt_function **out) {
  try {
    std::lock_guard<std::mutex> hold(program->lock);
    std::unique_ptr<mt_function> &at = program->functions[name];
    if (!at) {
      if (const mt_status s = new_function(program, name, &at)) {
        program->functions.erase(name);
        return s;
      }
    }
    return *out = at.get(), MT_OK;
  } catch (const std::bad_alloc &) {
    return cuda_fail_text(MT_EMEMORY, "%s: out of memory", name);
  }
}

int parameter_bytes(const mt_function *f, int i) {
  using get_info = CUresult (*)(CUfunction, size_t, size_t *, size_t *);
  static const auto get =
      reinterpret_cast<get_info>(driver_function("cuFuncGetParamInfo", 12040));
  size_t offset = 0, bytes = 0;
  if (!get) return -1;
  return get(f->handle, size_t(i), &offset, &bytes) == CUDA_SUCCESS ? int(bytes) : 0;
}

// ---- launching --------------------------------------------------------------------------

mt_status check_shape(const mt_function *f, const mt_launch &s) {
  static const char xyz[] = "xyz";
  static const uint32_t most_grid[3] = {2147483647u, 65535u, 65535u},
                        most_block[3] = {1024u, 1024u, 64u};
  for (int i = 0; i < 3; i++) {
    if (s.grid[i] > most_grid[i])
      return cuda_fail_text(MT_EARG, "a grid of %u blocks in %c, more than %u",
                            s.grid[i], xyz[i], most_grid[i]);
    if (s.block[i] < 1 || s.block[i] > most_block[i])
      return cuda_fail_text(MT_EARG, "a block of %u threads in %c, not 1 .. %u",
                            s.block[i], xyz[i], most_block[i]);
  }
  const uint32_t threads = s.block[0] * s.block[1] * s.block[2];
  if (threads > 1024)
    return cuda_fail_text(MT_EARG,
                          "a block of %u x %u x %u = %u threads, more than 1024",
                          s.block[0], s.block[1], s.block[2], threads);
  if (threads > f->max_threads)
    return cuda_fail_text(MT_EARG,
                          "a block of %u threads; with the registers (or "
                          "__launch_bounds__) of this kernel at most %u",
                          threads, f->max_threads);
  return MT_OK;
}

mt_status ask_for_shared(mt_function *f, uint32_t bytes) {
  device_limits limits;
  if (const mt_status s = limits_of(f->device, &limits)) return s;
  if (uint64_t(bytes) + f->shared_bytes > uint64_t(limits.shared))
    return cuda_fail_text(MT_EARG,
                          "%u bytes of dynamic and %u of static shared "
                          "memory, more than %d",
                          bytes, f->shared_bytes, limits.shared);
  if (uint64_t(bytes) + f->shared_bytes > 48 * 1024)
    DRIVER_TRY(driver.cuFuncSetAttribute(
        f->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(bytes)));
  f->asked = bytes;
  return MT_OK;
}

mt_status launch(mt_function *f, int device, void *stream, const mt_launch *shape,
                 void **params) {
  const mt_launch &s = *shape;
  if (device != f->device)
    return cuda_fail_text(MT_EDEVICE, "kernel %s was compiled for cuda:%d, not cuda:%d",
                          f->name.c_str(), f->device, device);
  if (const mt_status status = cuda_device_api.open(device)) return status;
  if (const mt_status status = check_shape(f, s)) return status;
  if (s.shared_bytes > f->asked)
    if (const mt_status status = ask_for_shared(f, s.shared_bytes)) return status;
  if (!s.grid[0] || !s.grid[1] || !s.grid[2]) return MT_OK;
  const CUresult result = driver.cuLaunchKernel(
      f->handle, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
      s.shared_bytes, static_cast<CUstream>(stream), params, nullptr);
  if (result == CUDA_SUCCESS)
    return jit_note_launch(device, stream, f->name.c_str()), MT_OK;
  return cuda_fail(static_cast<cudaError_t>(result), ("kernel " + f->name).c_str());
}

mt_status launched_elsewhere(int device, void *stream, const char *name, int error) {
  if (const mt_status s = cuda_device_api.open(device)) return s;
  if (error) return cuda_fail(static_cast<cudaError_t>(error), name);
  return jit_note_launch(device, stream, jit_lasting(name)), MT_OK;
}

} // namespace

const mt_toolchain cuda_toolchain = {unavailable,     compile, function,
                                     parameter_bytes, launch,  launched_elsewhere};
