/* runtime/core/fuse_gpu.c -- fused operators on GPUs. */
#include "runtime/core/fuse.h"

void mt_fused_free_gpu(mt_fused *f) { (void)f; }

mt_status mt_fused_run_gpu(mt_fused *f, const char *name, mt_dtype compute,
                           const mt_call *call, const mt_fuse_loops *loops) {
  (void)f, (void)compute, (void)call, (void)loops;
  return mt_fail(MT_EUNSUPPORTED, "%s: not on GPUs", name);
}

mt_status mt_fuse_source(mt_fuse *f, char **text) {
  (void)f, (void)text;
  return mt_fail(MT_EUNSUPPORTED, "fuse: not yet");
}
