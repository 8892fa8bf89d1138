/* runtime/core/signature.h -- the text of a signature: "x, dim:dims=all -> y". */
#ifndef MT_SIGNATURE_H
#define MT_SIGNATURE_H

#include "runtime/core/op.h"

/* Fill in param, nparams, nin, nattr, nout, list, out_name, and inplace where the text
** says so ("-> y!"). MT_EINTERNAL: the text is malformed. */
mt_status mt_signature_parse(mt_opinfo *info, const char *text);

#endif
