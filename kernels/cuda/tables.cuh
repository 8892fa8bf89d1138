// kernels/cuda/tables.cuh -- the tables of functions that the core asks for by name.
#ifndef MT_CUDA_TABLES_CUH
#define MT_CUDA_TABLES_CUH

const void *cuda_table(const char *name); // NULL: there is none of that name

#endif
