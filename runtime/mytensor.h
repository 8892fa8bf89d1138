/* runtime/mytensor.h -- mytensor for C and C++: how a program loads it, and how C code
** works on the tensors of a Lua state.
**
** To embed: link with mytensor.so (or its objects), then
**   luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
**
** To extend: a C module needs no symbol of mytensor, only this header:
**   const mytensor_api *mt = mytensor_get_api(L);   raises if there is no mytensor
**   mytensor_info x;
**   mt->info(L, 1, &x);
** mt.extension.load{...} compiles such modules; examples/extension shows some.
**
** All functions obey Lua's rules: they may raise errors, by longjmp (in C++ no object
** with a destructor may wait for it), and they leave on the stack only what they say.
** Dims are counted from 0, strides in elements. A device is the number of a GPU, or
** MYTENSOR_CPU. */
#ifndef MYTENSOR_H
#define MYTENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <lauxlib.h>
#include <lua.h>

#define MT_VERSION "0.1.0"
/* Grows with each function added, at the end of mytensor_api: a module runs with the
** version that it was compiled for and with all later ones. */
#define MT_API_VERSION 2

#define MYTENSOR_MAX_DIMS 12
#define MYTENSOR_CPU      (-1)

#if defined(__GNUC__)
#define MT_API __attribute__((visibility("default")))
#else
#define MT_API
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
  int cuda; /* MYTENSOR_CPU: data is in main memory; else the number of a GPU */
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

  /* Describe the tensor at index; raises "bad argument" if there is none. Of one on a
  ** GPU the memory is then not given away before the work of the current stream is
  ** done, even if the tensor is freed. */
  void (*info)(lua_State *L, int index, mytensor_info *out /* [out] */);

  /* Push the tensor at index as a contiguous one of dtype in main memory: itself if
  ** it is that already, else a copy without history. */
  void (*push_contiguous)(lua_State *L, int index, mytensor_dtype dtype);

  /* Push a new tensor of zeros in main memory. */
  void (*push_zeros)(lua_State *L, mytensor_dtype dtype, int ndim,
                     const int64_t *shape);

  /* Push a contiguous tensor over main memory of the caller. release(user, data) runs
  ** when no tensor uses it any more; it runs, too, when this raises. release may be
  ** NULL. */
  void (*push_blob)(lua_State *L, void *data, mytensor_dtype dtype, int ndim,
                    const int64_t *shape, void (*release)(void *user, void *data),
                    void *user);

  /* Tell autograd that C has written to the elements of the tensor at index. */
  void (*mark_written)(lua_State *L, int index);

  /* ---- since version 2 ---- */

  /* "float32", and the bytes of an element. */
  const char *(*dtype_name)(mytensor_dtype dtype);
  size_t (*dtype_size)(mytensor_dtype dtype);

  /* Push and return "float32 of shape [2, 3] on cuda:0", or what else stands there:
  ** for messages. */
  const char *(*push_text)(lua_State *L, int index);

  /* Push the tensor at index, contiguous, of its own dtype and on its own device:
  ** itself if it is that already, else a copy without history. */
  void (*push_contiguous_here)(lua_State *L, int index);

  /* The same with a dtype and a device that may be others. */
  void (*push_converted)(lua_State *L, int index, mytensor_dtype dtype, int cuda);

  /* Push a new tensor, its elements not set; and one of the shape, dtype and device of
  ** the one at index, contiguous. */
  void (*push_empty)(lua_State *L, mytensor_dtype dtype, int cuda, int ndim,
                     const int64_t *shape);
  void (*push_empty_like)(lua_State *L, int index);

  /* push_blob over memory of any device. release runs when no tensor uses it any more,
  ** but work that was queued may: cudaFree waits for it, cudaFreeAsync on the stream
  ** comes after it. */
  void (*push_blob_on)(lua_State *L, void *data, mytensor_dtype dtype, int cuda,
                       int ndim, const int64_t *shape,
                       void (*release)(void *user, void *data), void *user);

  /* Raise if C may not write to the tensor at index now: recording is on, and it
  ** requires grad. (In the forward of an mt.Function recording is off.) arg: the
  ** argument that the message blames. */
  void (*check_writable)(lua_State *L, int index, int arg);

  /* The current stream of a GPU, a cudaStream_t, where every launch belongs. Makes the
  ** GPU this thread's current one. Raises where there is none, or it was lost. */
  void *(*cuda_stream)(lua_State *L, int cuda);

  /* What the launch of a kernel gave: error and its text, of cudaGetLastError() and
  ** cudaGetErrorString(); raises if it is not 0. name is told should the kernel turn
  ** out to have destroyed the device. MT_CUDA_LAUNCHED calls it. */
  void (*cuda_launched)(lua_State *L, int cuda, const char *name, int error,
                        const char *text);

  /* The GPU that "cuda" means; MYTENSOR_CPU if none can be used. */
  int (*cuda_current)(lua_State *L);
} mytensor_api;

/* The functions of the runtime that L has loaded. */
static inline const mytensor_api *mytensor_get_api(lua_State *L) {
  const mytensor_api *api;
  int version;
  lua_getfield(L, LUA_REGISTRYINDEX, "mytensor.api.2");
  api = (const mytensor_api *)lua_touserdata(L, -1);
  lua_getfield(L, LUA_REGISTRYINDEX, "mytensor.api"); /* what version 1 looked for */
  version = api != NULL                  ? api->version
            : lua_touserdata(L, -1) != 0 ? *(const int *)lua_touserdata(L, -1)
                                         : 0;
  lua_pop(L, 2);
  if (version == 0) luaL_error(L, "the module mytensor is not loaded");
  if (version < MT_API_VERSION) {
    luaL_error(L,
               "mytensor has API version %d; this module was compiled for version %d, "
               "and needs a newer mytensor",
               version, MT_API_VERSION);
  }
  return api;
}

/* Raise "bad argument #arg to 'f' (...)" unless condition holds; the message as for
** lua_pushfstring: MT_CHECK(L, 2, b.ndim == 1, "1 dim expected, got %d", b.ndim); */
#define MT_CHECK(L, arg, condition, ...)                                            \
  do {                                                                              \
    if (!(condition)) luaL_argerror((L), (arg), lua_pushfstring((L), __VA_ARGS__)); \
  } while (0)

/* In a source with CUDA's runtime: raise unless a call of it succeeds. */
#define MT_CUDA_CHECK(L, call)                                             \
  do {                                                                     \
    const cudaError_t mt_cuda_error = (call);                              \
    if (mt_cuda_error != cudaSuccess) {                                    \
      luaL_error((L), "%s: %s", #call, cudaGetErrorString(mt_cuda_error)); \
    }                                                                      \
  } while (0)

/* Behind a launch: MT_CUDA_LAUNCHED(L, mt, x.cuda, "scale"); */
#define MT_CUDA_LAUNCHED(L, mt, cuda, name)                      \
  do {                                                           \
    const cudaError_t mt_cuda_error = cudaGetLastError();        \
    (mt)->cuda_launched((L), (cuda), (name), (int)mt_cuda_error, \
                        cudaGetErrorString(mt_cuda_error));      \
  } while (0)

/* The function that opens a module compiled by mt.extension, which defines
** MT_EXTENSION_NAME: MT_EXTENSION_OPEN(L) { luaL_newlib(L, functions); return 1; } */
#define MT_PASTE_(a, b) a##b
#define MT_PASTE(a, b)  MT_PASTE_(a, b)
#ifdef __cplusplus
#define MT_EXTENSION_OPEN(L) \
  extern "C" MT_API int MT_PASTE(luaopen_, MT_EXTENSION_NAME)(lua_State * L)
#else
#define MT_EXTENSION_OPEN(L)                                       \
  MT_API int MT_PASTE(luaopen_, MT_EXTENSION_NAME)(lua_State * L); \
  MT_API int MT_PASTE(luaopen_, MT_EXTENSION_NAME)(lua_State * L)
#endif

#ifdef __cplusplus
}
#endif
#endif
