/* runtime/bind/forms.h -- calls that another row of the op table serves, told by their
** arguments: clamp to tensors, sums with alpha, rounded quotients and the like. */
#ifndef MT_BIND_FORMS_H
#define MT_BIND_FORMS_H

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

typedef struct mtl_form mtl_form;

/* The other form of an op; NULL: it has none. */
const mtl_form *mtl_form_of(mt_op op);
/* The row for the call on the stack, whose arguments become that row's. */
mt_op mtl_choose_form(lua_State *L, const mtl_form *form, const char *fname);

/* Integers to the power of a negative integer, a number: true, and what is to be said. */
bool mtl_is_fraction(const mt_tensor *a, const mt_tensor *b, mtl_text *e /* [out] */);

#endif
