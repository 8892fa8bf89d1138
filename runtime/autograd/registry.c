/* runtime/autograd/registry.c -- by op: its gradient rule and its composite builder. */
#include "runtime/autograd/rules.h"

/* What the rows with gradient NONE name: nothing flows. */
const mt_grad_rule mt_grad_NONE = {0, 0, NULL};

static const mt_grad_rule *const rules[MT_OP_COUNT] = {
#define MT_CUSTOM(name, signature, rule, dtypes, gradient, doc) \
  [MT_OP_##name] = &mt_grad_##gradient,
#define MT_RANDOM(name, signature, rule, dtypes, gradient, doc) \
  [MT_OP_##name] = &mt_grad_##gradient,
#define MT_VIEW(name, signature, rule, gradient, doc) \
  [MT_OP_##name] = &mt_grad_##gradient,
#include "kernels/ops.def"
};

static const mt_build builders[MT_OP_COUNT] = {
#define MT_COMPOSITE(name, signature, build, doc) [MT_OP_##name] = mt_build_##build,
#include "kernels/ops.def"
};

const mt_grad_rule *mt_op_rule(mt_op op) {
  return rules[op] && rules[op]->run ? rules[op] : NULL;
}

mt_build mt_op_build(mt_op op) { return builders[op]; }
