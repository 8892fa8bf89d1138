/* runtime/core/plugin.c -- finds, opens and checks the CUDA backend, once a process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract.h"
#include "runtime/core/context.h"

#define FILE_NAME "mytensor_cuda.so"
#ifndef MT_LIBDIR
#define MT_LIBDIR "/usr/local/lib/mytensor"
#endif

static const mt_backend *backend;
static char why_not[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Open one file. 0: it is not there; otherwise the search ends here. */
static int try_file(const char *path) {
  if (access(path, R_OK) != 0) return 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why_not, sizeof why_not, "%s", dlerror());
    return 1;
  }
  const mt_backend *(*get)(void);
  *(void **)&get = dlsym(library, "mytensor_cuda_backend");
  const mt_backend *found = get ? get() : NULL;
  if (!found || strcmp(found->contract, MT_CONTRACT) != 0) {
    snprintf(why_not, sizeof why_not,
             "%s belongs to another build of mytensor (contract %s, this is %s)", path,
             found ? found->contract : "none", MT_CONTRACT);
    return 1; /* stays loaded: its CUDA runtime cannot be unloaded safely */
  }
  const char *reason = found->device->unavailable();
  if (reason)
    snprintf(why_not, sizeof why_not, "%s", reason);
  else
    backend = found;
  return 1;
}

/* Beside the host or module that holds this function. */
static int try_beside(void) {
  Dl_info info;
  char path[4096], real[4096];
  if (!dladdr((void *)mt_cuda_backend, &info) || !info.dli_fname) return 0;
  const char *file = info.dli_fname;
  if (!strchr(file, '/')) file = "/proc/self/exe"; /* the host, started through PATH */
  if (!realpath(file, real)) return 0;
  const char *slash = strrchr(real, '/');
  if (!slash) return 0;
  const int folder = (int)(slash - real);
  if (snprintf(path, sizeof path, "%.*s/" FILE_NAME, folder, real) >= (int)sizeof path)
    return 0;
  return try_file(path);
}

static void open_plugin(void) {
  const char *named = getenv("MYTENSOR_CUDA");
  if (named && *named) {
    if (*named != '/')
      snprintf(why_not, sizeof why_not, "MYTENSOR_CUDA=%.300s is no absolute path",
               named);
    else if (!try_file(named))
      snprintf(why_not, sizeof why_not, "MYTENSOR_CUDA=%.300s cannot be read", named);
    return;
  }
  if (try_beside() || try_file(MT_LIBDIR "/" FILE_NAME)) return;
  snprintf(why_not, sizeof why_not,
           FILE_NAME " was found neither beside mytensor nor in " MT_LIBDIR);
}

const mt_backend *mt_cuda_backend(const char **reason) {
  pthread_once(&once, open_plugin);
  if (!backend) *reason = why_not;
  return backend;
}

const mt_backend *mt_backend_of(mt_device device) {
  static int known; /* GPUs that were found to be there, once */
  if (device.kind == MT_CPU) return mt_cpu_backend();
  if (device.index < __atomic_load_n(&known, __ATOMIC_ACQUIRE)) return backend;
  const char *reason = NULL;
  const mt_backend *cuda = mt_cuda_backend(&reason);
  if (!cuda) {
    mt_fail(MT_EDEVICE, "no device %s: %s", mt_device_name(device), reason);
    return NULL;
  }
  const int count = cuda->device->device_count();
  if (device.index >= count || device.index >= MT_MAX_GPUS) {
    mt_fail(MT_EDEVICE, "no device %s: there %s %d GPU%s", mt_device_name(device),
            count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    return NULL;
  }
  __atomic_store_n(&known, count < MT_MAX_GPUS ? count : MT_MAX_GPUS, __ATOMIC_RELEASE);
  return cuda;
}
