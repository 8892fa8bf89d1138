// kernels/cuda/tables.cu -- the tables of functions beyond ops, by name.
#include "kernels/cuda/tables.cuh"
#include <cstring>
#include "kernels/cuda/graphs.cuh"
#include "kernels/cuda/jit.cuh"
#include "kernels/cuda/profiling.cuh"

namespace {

struct named_table {
  const char *name;
  const void *table;
};

const named_table tables[] = {
    {"graphs", &cuda_graphs},
    {"profiling", &cuda_profiling},
    {"toolchain", &cuda_toolchain},
    {nullptr, nullptr},
};

} // namespace

const void *cuda_table(const char *name) {
  for (const named_table *t = tables; t->name; t++) {
    if (!strcmp(t->name, name)) return t->table;
  }
  return nullptr;
}
