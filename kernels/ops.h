/* kernels/ops.h -- enum mt_op: one number for each row of ops.def. */
#ifndef MT_OPS_H
#define MT_OPS_H

typedef enum mt_op {
#define MT_UNARY(name, ...)     MT_OP_##name,
#define MT_PREDICATE(name, ...) MT_OP_##name,
#define MT_BINARY(name, ...)    MT_OP_##name,
#define MT_COMPARE(name, ...)   MT_OP_##name,
#define MT_TERNARY(name, ...)   MT_OP_##name,
#define MT_CUSTOM(name, ...)    MT_OP_##name,
#define MT_RANDOM(name, ...)    MT_OP_##name,
#define MT_VIEW(name, ...)      MT_OP_##name,
#define MT_COMPOSITE(name, ...) MT_OP_##name,
#include "ops.def"
  MT_OP_COUNT
} mt_op;

#endif
