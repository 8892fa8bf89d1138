/* spec/support/extension.c -- a C module that shares memory with tensors by mytensor.h. */
#include <stdlib.h>

#include "mytensor.h"

static int released;

static void release(void *user, void *data) {
  (void)user;
  released++;
  free(data);
}

/* extension.twice(t): a float64 copy, or t itself, with every element doubled */
static int twice(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  mytensor_info x;
  mt->push_contiguous(L, 1, MYTENSOR_FLOAT64);
  mt->info(L, -1, &x);
  for (int64_t i = 0; i < x.numel; i++) ((double *)x.data)[i] *= 2;
  mt->mark_written(L, -1);
  return 1;
}

/* extension.blob(rows, columns[, dtype]): 0, 1, ... in memory of this module */
static int blob(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  const int64_t shape[2] = {luaL_checkinteger(L, 1), luaL_checkinteger(L, 2)};
  const int dtype = (int)luaL_optinteger(L, 3, MYTENSOR_FLOAT32);
  float *data = calloc(6, sizeof *data);
  if (data == NULL) return luaL_error(L, "not enough memory");
  for (int i = 0; i < 6; i++) data[i] = (float)i;
  mt->push_blob(L, data, (mytensor_dtype)dtype, 2, shape, release, NULL);
  return 1;
}

/* extension.zeros(n): bool */
static int zeros(lua_State *L) {
  const int64_t shape[1] = {luaL_checkinteger(L, 1)};
  mytensor_get_api(L)->push_zeros(L, MYTENSOR_BOOL, 1, shape);
  return 1;
}

/* extension.is_tensor(x) */
static int is_tensor(lua_State *L) {
  lua_pushboolean(L, mytensor_get_api(L)->is_tensor(L, 1));
  return 1;
}

/* extension.spoil(t, offset): a byte of t's memory, or of what lies beyond it, set to 7 */
static int spoil(lua_State *L) {
  mytensor_info x;
  mytensor_get_api(L)->info(L, 1, &x);
  ((char *)x.data)[luaL_checkinteger(L, 2)] = 7;
  return 0;
}

/* extension.released(): how many blobs were given back */
static int count_released(lua_State *L) {
  lua_pushinteger(L, released);
  return 1;
}

int luaopen_extension(lua_State *L) {
  static const luaL_Reg functions[] = {{"twice", twice}, {"blob", blob},
                                       {"zeros", zeros}, {"is_tensor", is_tensor},
                                       {"spoil", spoil}, {"released", count_released},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
