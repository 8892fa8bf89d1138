// kernels/cuda/library.cu -- where the shared libraries of CUDA are looked for.
#include "kernels/cuda/library.cuh"
#include <dlfcn.h>
#include <cstdlib>

void *open_library(const std::string &name, std::string *error) {
  Dl_info self;
  std::string beside;
  if (dladdr(reinterpret_cast<void *>(&open_library), &self) && self.dli_fname) {
    beside = self.dli_fname;
    beside.resize(beside.rfind('/') == std::string::npos ? 0 : beside.rfind('/') + 1);
  }
  const char *home = getenv("CUDA_HOME");
  const std::string folders[] = {"",
                                 home ? std::string(home) + "/lib64/" : "",
                                 "/usr/local/cuda/lib64/",
                                 "/usr/local/cuda/targets/x86_64-linux/lib/",
                                 "/usr/lib/x86_64-linux-gnu/",
                                 beside};
  for (const std::string &folder : folders)
    if (void *library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL))
      return library;
  *error = name + " was not found (looked in the loader's path, $CUDA_HOME/lib64, "
                  "/usr/local/cuda/lib64, /usr/lib/x86_64-linux-gnu and beside the "
                  "plugin)";
  return nullptr;
}
