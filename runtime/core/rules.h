/* runtime/core/rules.h -- the shape rules that ops.def names: mt_rule_<name>, one file
** a family: rule_<family>.c. */
#ifndef MT_RULES_H
#define MT_RULES_H

#include "runtime/core/op.h"

#define MT_CUSTOM(name, signature, rule, ...) mt_status mt_rule_##rule(mt_plan *p);
#define MT_RANDOM(name, signature, rule, ...) mt_status mt_rule_##rule(mt_plan *p);
#define MT_VIEW(name, signature, rule, ...)   mt_status mt_rule_##rule(mt_plan *p);
#include "kernels/ops.def"

/* MT_ESHAPE, of argument 1, unless the last two dims are alike. */
mt_status mt_check_square(const mt_view *x);
/* Set out[i]'s shape. */
void mt_plan_shape(mt_plan *p, int i, int ndim, const int64_t *shape);

#endif
