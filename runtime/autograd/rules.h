/* runtime/autograd/rules.h -- the gradient rules and composite builders that ops.def
** names: mt_grad_<name> in grad_<family>.c, mt_build_<name> in build_<family>.c. */
#ifndef MT_GRAD_RULES_H
#define MT_GRAD_RULES_H

#include "runtime/autograd/rule.h"

#define MT_CUSTOM(name, signature, rule, dtypes, gradient, doc) \
  extern const mt_grad_rule mt_grad_##gradient;
#define MT_RANDOM(name, signature, rule, dtypes, gradient, doc) \
  extern const mt_grad_rule mt_grad_##gradient;
#define MT_VIEW(name, signature, rule, gradient, doc) \
  extern const mt_grad_rule mt_grad_##gradient;
#define MT_COMPOSITE(name, signature, build, doc) \
  mt_status mt_build_##build(mt_build_call *c);
#include "kernels/ops.def"

#endif
