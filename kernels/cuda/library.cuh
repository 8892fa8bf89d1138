// kernels/cuda/library.cuh -- shared libraries of CUDA, found at run time.
#ifndef MT_CUDA_LIBRARY_CUH
#define MT_CUDA_LIBRARY_CUH

#include <string>

// From the loader's path, $CUDA_HOME/lib64, the usual folders, or beside the plugin. NULL:
// *error says what was not found, and where.
void *open_library(const std::string &name, std::string *error /* [out] */);

#endif
