/* runtime/core/toolchain.c -- finds what compiles kernels for a device. */
#include "runtime/core/toolchain.h"

#include "runtime/core/status.h"

const mt_toolchain *mt_toolchain_of(mt_device device) {
  const mt_backend *backend = mt_backend_of(device);
  if (!backend) return NULL;
  const mt_toolchain *t = backend->table ? backend->table("toolchain") : NULL;
  if (!t) {
    mt_fail(MT_EDEVICE, "the backend %s compiles no kernels", backend->name);
    return NULL;
  }
  const char *reason = t->unavailable();
  if (reason) {
    mt_fail(MT_EDEVICE, "no kernel can be compiled: %s", reason);
    return NULL;
  }
  return t;
}

const char *mt_toolchain_missing(void) {
  const char *reason = NULL;
  const mt_backend *backend = mt_cuda_backend(&reason);
  if (!backend) return reason;
  const mt_toolchain *t = backend->table ? backend->table("toolchain") : NULL;
  return t ? t->unavailable() : "not in this backend";
}

mt_status mt_toolchain_check(const mt_toolchain *t, const mt_function *f,
                             const char *name, int n, const int *bytes) {
  if (t->parameter_bytes(f, 0) < 0) return MT_OK;
  int has = 0;
  while (t->parameter_bytes(f, has) > 0) has++;
  if (has != n) {
    return mt_fail(MT_EARG,
                   "%s has %d parameters, by its signature %d; signature = \"...\" "
                   "can tell them",
                   name, has, n);
  }
  for (int i = 0; i < n; i++) {
    const int size = t->parameter_bytes(f, i);
    if (size == bytes[i]) continue;
    return mt_fail(MT_EARG,
                   "parameter %d of %s has %d bytes, by its signature %d; signature = "
                   "\"...\" can tell its type",
                   i + 1, name, size, bytes[i]);
  }
  return MT_OK;
}

mt_status mt_toolchain_status(mt_device device, const char *fname, mt_status status) {
  if (status == MT_OK) return MT_OK;
  const char *text = mt_backend_of(device)->device->error_text();
  return fname ? mt_fail(status, "%s: %s", fname, text) : mt_fail(status, "%s", text);
}
