// spec/units/jit_cache.cu -- the cache of compiled code, by itself.
//
// usage: jit_cache trim FOLDER BYTES; or jit_cache use COUNT SIZE, in $MYTENSOR_CACHE
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "kernels/cuda/jit.cuh"

int main(int n, char **args) {
  if (n != 4) return 2;
  if (!strcmp(args[1], "trim")) {
    jit_cache_trim(args[2], strtoull(args[3], nullptr, 10));
    return 0;
  }
  std::string problem, code;
  for (int i = 0, count = atoi(args[2]); i < count; i++) {
    const std::string key = "key " + std::to_string(i % 50);
    const std::string content(size_t(atoi(args[3])) + size_t(i % 50), 'x');
    jit_cache_write(key, content, &problem);
    if (jit_cache_read(key, &code) && code != content) return printf("another\n"), 1;
  }
  if (!problem.empty()) return printf("%s", problem.c_str()), 1;
  return 0;
}
