/* kernels/cpu/fuse.h -- what fused operators are on the CPU: the table "fuse". */
#ifndef MT_CPU_FUSE_H
#define MT_CPU_FUSE_H

#include "kernels/cpu/fuse_code.h"

extern const mt_fuse_backend mt_cpu_fuse;

mt_fuse_code *mt_cpu_fuse_prepare(const mt_fuse_program *program, mt_dtype dtype);
void mt_cpu_fuse_release(mt_fuse_code *code);

#endif
