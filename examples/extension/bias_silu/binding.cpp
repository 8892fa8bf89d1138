// examples/extension/bias_silu/binding.cpp -- y = silu(x + bias) in one pass over
// memory, and its gradient: the wrapper, and the loops for the CPU.
#include <cmath>
#include "mytensor.h"

// A pass over x: y = silu(x + bias); with g, y = g * silu'(x + bias).
#ifdef MT_EXTENSION_CUDA
void bias_silu_cuda(lua_State *L, const mytensor_api *mt, const mytensor_info *x,
                    const mytensor_info *bias, const mytensor_info *g,
                    const mytensor_info *y);
#endif

namespace {

template <class T>
void bias_silu_cpu(const mytensor_info *x, const mytensor_info *bias,
                   const mytensor_info *g, const mytensor_info *y) {
  const T *from = static_cast<const T *>(x->data), *b = static_cast<T *>(bias->data);
  const T *dy = g ? static_cast<const T *>(g->data) : nullptr;
  T *to = static_cast<T *>(y->data);
  const int64_t n = bias->numel;
  for (int64_t row = 0; row < x->numel; row += n) {
    for (int64_t i = 0; i < n; i++) {
      const T v = from[row + i] + b[i], s = T(1) / (T(1) + std::exp(-v));
      to[row + i] = dy ? dy[row + i] * s * (T(1) + v * (T(1) - s)) : v * s;
    }
  }
}

void run(lua_State *L, const mytensor_api *mt, const mytensor_info *x,
         const mytensor_info *bias, const mytensor_info *g, const mytensor_info *y) {
  if (x->cuda == MYTENSOR_CPU) {
    if (x->dtype == MYTENSOR_FLOAT32)
      bias_silu_cpu<float>(x, bias, g, y);
    else
      bias_silu_cpu<double>(x, bias, g, y);
    return;
  }
#ifdef MT_EXTENSION_CUDA
  bias_silu_cuda(L, mt, x, bias, g, y);
#else
  (void)mt;
  luaL_error(L, "bias_silu was compiled without CUDA");
#endif
}

// The tensor at arg, contiguous, left in the stack: a float like x, on its device.
void check(lua_State *L, const mytensor_api *mt, int arg, const mytensor_info *like,
           mytensor_info *out) {
  mt->info(L, arg, out);
  MT_CHECK(L, arg, out->dtype == MYTENSOR_FLOAT32 || out->dtype == MYTENSOR_FLOAT64,
           "float32 or float64 expected, got %s", mt->push_text(L, arg));
  MT_CHECK(L, arg, out->dtype == like->dtype && out->cuda == like->cuda,
           "%s does not go with %s", mt->push_text(L, arg), mt->push_text(L, 1));
  mt->push_contiguous_here(L, arg);
  mt->info(L, -1, out);
}

// y = bias_silu.forward(x, bias); dx = bias_silu.backward(x, bias, dy)
int pass(lua_State *L, bool backward) {
  const mytensor_api *mt = mytensor_get_api(L);
  mytensor_info x, bias, dy, y;
  mt->info(L, 1, &x);
  check(L, mt, 1, &x, &x);
  check(L, mt, 2, &x, &bias);
  MT_CHECK(L, 1, x.ndim > 0, "one dim at least expected, got %s", mt->push_text(L, 1));
  MT_CHECK(L, 2, bias.ndim == 1 && bias.shape[0] == x.shape[x.ndim - 1],
           "%d elements expected for %s, got %s", int(x.shape[x.ndim - 1]),
           mt->push_text(L, 1), mt->push_text(L, 2));
  if (backward) {
    check(L, mt, 3, &x, &dy);
    MT_CHECK(L, 3, dy.numel == x.numel, "%s does not go with %s", mt->push_text(L, 3),
             mt->push_text(L, 1));
  }
  mt->push_empty_like(L, 1);
  mt->info(L, -1, &y);
  if (x.numel > 0) run(L, mt, &x, &bias, backward ? &dy : nullptr, &y);
  return 1;
}

int forward(lua_State *L) { return pass(L, false); }
int backward(lua_State *L) { return pass(L, true); }

} // namespace

MT_EXTENSION_OPEN(L) {
  static const luaL_Reg functions[] = {
      {"forward", forward}, {"backward", backward}, {nullptr, nullptr}};
  luaL_newlib(L, functions);
  return 1;
}
