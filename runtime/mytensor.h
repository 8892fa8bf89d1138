/* runtime/mytensor.h -- mytensor for C: how a program loads it, and how C code shares
** memory with the tensors of a Lua state.
**
** To embed: link with mytensor.so (or its objects), then
**   luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
**
** To extend: a C module needs no symbol of mytensor, only this header:
**   const mytensor_api *mt = mytensor_get_api(L);   raises if there is no mytensor
**   mytensor_info x;
**   mt->info(L, 1, &x);
**
** All functions obey Lua's rules: they may raise errors, and they leave on the stack
** only what they say. Dims are counted from 0, strides in elements. */
#ifndef MYTENSOR_H
#define MYTENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <lauxlib.h>
#include <lua.h>

#define MT_VERSION "0.1.0"
#define MT_API_VERSION \
  1 /* fields are only added, at the end, while it stays the same */

#define MYTENSOR_MAX_DIMS 12

#if defined(__GNUC__)
#define MT_API __attribute__((visibility("default")))
#else
#define MT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What require "mytensor" calls. Leaves no global. */
MT_API int luaopen_mytensor(lua_State *L);

typedef enum mytensor_dtype {
  MYTENSOR_FLOAT32,
  MYTENSOR_FLOAT64,
  MYTENSOR_FLOAT16,
  MYTENSOR_BFLOAT16,
  MYTENSOR_INT64,
  MYTENSOR_INT32,
  MYTENSOR_INT16,
  MYTENSOR_INT8,
  MYTENSOR_UINT8,
  MYTENSOR_BOOL /* one byte, 0 or 1 */
} mytensor_dtype;

/* A tensor as C sees it. data stays valid while the tensor is in the stack, or
** otherwise kept from the collector and from t:free(). */
typedef struct mytensor_info {
  void *data; /* the first element; NULL if there is none */
  mytensor_dtype dtype;
  int cuda; /* -1: data is in main memory; else the number of a CUDA device */
  int ndim;
  int contiguous; /* row-major, without gaps */
  int64_t numel;
  int64_t shape[MYTENSOR_MAX_DIMS];
  int64_t stride[MYTENSOR_MAX_DIMS]; /* elements; 0: broadcast */
} mytensor_info;

typedef struct mytensor_api {
  int version; /* MT_API_VERSION of the runtime */

  /* Is the value at index a tensor that was not freed? Never raises. */
  int (*is_tensor)(lua_State *L, int index);

  /* Describe the tensor at index; raises "bad argument" if there is none. */
  void (*info)(lua_State *L, int index, mytensor_info *out /* [out] */);

  /* Push the tensor at index as a contiguous one of dtype in main memory: itself if
  ** it is that already, else a copy without history. */
  void (*push_contiguous)(lua_State *L, int index, mytensor_dtype dtype);

  /* Push a new tensor of zeros in main memory. */
  void (*push_zeros)(lua_State *L, mytensor_dtype dtype, int ndim,
                     const int64_t *shape);

  /* Push a contiguous tensor over memory of the caller. release(user, data) runs
  ** when no tensor uses it any more; it runs, too, when this raises. release may be
  ** NULL. */
  void (*push_blob)(lua_State *L, void *data, mytensor_dtype dtype, int ndim,
                    const int64_t *shape, void (*release)(void *user, void *data),
                    void *user);

  /* Tell autograd that C has written to the elements of the tensor at index. */
  void (*mark_written)(lua_State *L, int index);
} mytensor_api;

/* The functions of the runtime that L has loaded. */
static inline const mytensor_api *mytensor_get_api(lua_State *L) {
  const mytensor_api *api;
  lua_getfield(L, LUA_REGISTRYINDEX, "mytensor.api");
  api = (const mytensor_api *)lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (api == NULL) luaL_error(L, "the module mytensor is not loaded");
  if (api->version != MT_API_VERSION) {
    luaL_error(L, "mytensor has API version %d; this module was compiled for %d",
               api->version, MT_API_VERSION);
  }
  return api;
}

#ifdef __cplusplus
}
#endif
#endif
