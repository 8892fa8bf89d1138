/* examples/extension/vector_add/binding.c -- z = x + y as a module of its own: the
** wrapper that checks what Lua gives, and the loop for the CPU. */
#include "mytensor.h"

#ifdef MT_EXTENSION_CUDA /* kernel.cu is compiled, too */
void vector_add_cuda(lua_State *L, const mytensor_api *mt, const mytensor_info *x,
                     const mytensor_info *y, const mytensor_info *z);
#endif

static void add_cpu(const float *x, const float *y, float *z, int64_t n) {
  for (int64_t i = 0; i < n; i++) z[i] = x[i] + y[i];
}

/* z = vector_add.add(x, y): float32, of one shape, on one device */
static int add(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  mytensor_info x, y, z;
  mt->info(L, 1, &x);
  mt->info(L, 2, &y);
  MT_CHECK(L, 1, x.dtype == MYTENSOR_FLOAT32, "float32 expected, got %s",
           mt->push_text(L, 1));
  MT_CHECK(L, 2, y.dtype == MYTENSOR_FLOAT32, "float32 expected, got %s",
           mt->push_text(L, 2));
  int same = x.ndim == y.ndim && x.cuda == y.cuda;
  for (int d = 0; same && d < x.ndim; d++) same = x.shape[d] == y.shape[d];
  MT_CHECK(L, 2, same, "%s expected, got %s", mt->push_text(L, 1), mt->push_text(L, 2));
  mt->push_contiguous_here(L, 1); /* a view is copied */
  mt->info(L, -1, &x);
  mt->push_contiguous_here(L, 2);
  mt->info(L, -1, &y);
  mt->push_empty_like(L, 1);
  mt->info(L, -1, &z);
  if (x.cuda == MYTENSOR_CPU) {
    add_cpu(x.data, y.data, z.data, z.numel);
    return 1;
  }
#ifdef MT_EXTENSION_CUDA
  vector_add_cuda(L, mt, &x, &y, &z);
  return 1;
#else
  return luaL_error(L, "vector_add was compiled without CUDA");
#endif
}

MT_EXTENSION_OPEN(L) {
  static const luaL_Reg functions[] = {{"add", add}, {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
