/* runtime/bind/pairs.c -- forward/backward pairs for those who write their own training
** step: fields of mt.nn, and methods of Tensor. All are made of ops, and record.
**
** Images are (N, C, H, W), weights of convolutions (K, C, KH, KW), labels count from 1. */
#include "runtime/autograd/calc.h"
#include "runtime/bind/bind.h"
#include "runtime/core/window.h"

#define MAX_TENSORS 3

/* One call: tensors are read after the results' userdata exist, and held until the end,
** since Lua's collector may run in between. */
typedef struct pair {
  lua_State *L;
  const char *fname;
  mt_calc calc;
  mt_tensor *in[MAX_TENSORS];
  mt_tensor **out[MAX_TENSORS]; /* userdata on top of the stack */
  int nout;
} pair;

/* nargs: the most arguments; the first nin are tensors, of which the last may be nil if
** optional. */
static void begin(pair *p, lua_State *L, const char *fname, int nargs, int nin,
                  bool optional, int nout) {
  mt_context *ctx = mtl_enter(L);
  if (lua_gettop(L) > nargs)
    mtl_argerror(L, nargs + 1, fname, "at most %d arguments expected",
                 nargs - mtl_is_method_call(L));
  lua_settop(L, nargs);
  *p = (pair){.L = L, .fname = fname, .nout = nout};
  for (int i = 0; i < nout; i++) p->out[i] = mtl_new_tensor(L);
  for (int i = 0; i < nin; i++)
    if (!(optional && i == nin - 1 && lua_isnil(L, i + 1)))
      p->in[i] = mtl_check_tensor(L, i + 1, fname);
  mt_calc_begin(&p->calc, ctx);
  for (int i = 0; i < nin; i++)
    if (p->in[i]) mt_cown(&p->calc, mt_retain(p->in[i]));
}

/* Hand y over as the results, or raise what went wrong. */
static int end(pair *p, mt_tensor **y) {
  const mt_status status = mt_calc_end(&p->calc, p->nout, y);
  if (status != MT_OK) return mtl_raise(p->L, p->fname);
  for (int i = 0; i < p->nout; i++) *p->out[i] = y[i];
  return p->nout;
}

/* A check failed: its text names the argument. */
static int fail(pair *p, mt_status status) {
  mt_tensor *none[MAX_TENSORS] = {NULL};
  p->calc.status = status;
  return end(p, none);
}

/* An op's errors count its own arguments: where ours stand in another order, they name
** none. */
static int end_reordered(pair *p, mt_tensor **y) {
  if (p->calc.status != MT_OK && p->calc.status != MT_ELUA) mt_last_error()->arg = 0;
  return end(p, y);
}

static mt_tensor *call(pair *p, mt_op op, mt_tensor *a, mt_tensor *b, int nattr,
                       const mt_attr *attr) {
  return mt_ca(&p->calc, op, 2, (mt_tensor *[]){a, b}, 0, nattr, attr, NULL);
}

/* ---- activations ---- */

static mt_status check_same(pair *p, const char *name) {
  const mt_view *x = &p->in[0]->v, *dy = &p->in[1]->v;
  if (mt_same_shape(x, dy)) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 2, "dy has shape %s, %s %s", mt_view_text(dy), name,
                     mt_view_text(x));
}

static int activation(lua_State *L, const char *fname, mt_op op) {
  pair p;
  begin(&p, L, fname, 1, 1, false, 1);
  mt_tensor *y = mt_c1(&p.calc, op, p.in[0]);
  return end(&p, &y);
}

/* y = x:relu_forward() */
static int relu_forward(lua_State *L) {
  return activation(L, "relu_forward", MT_OP_relu);
}

/* dx = x:relu_backward(dy) */
static int relu_backward(lua_State *L) {
  pair p;
  begin(&p, L, "relu_backward", 2, 2, false, 1);
  const mt_status status = check_same(&p, "x");
  if (status != MT_OK) return fail(&p, status);
  mt_calc *c = &p.calc;
  mt_tensor *positive = mt_c2(c, MT_OP_gt, p.in[0], mt_cnum(c, 0));
  mt_tensor *dx = mt_c3(c, MT_OP_where, positive, p.in[1], mt_cnum(c, 0));
  return end_reordered(&p, &dx);
}

/* y = x:sigmoid_forward() */
static int sigmoid_forward(lua_State *L) {
  return activation(L, "sigmoid_forward", MT_OP_sigmoid);
}

/* dx = x:sigmoid_backward(dy): dy * y * (1 - y), y = sigmoid(x) */
static int sigmoid_backward(lua_State *L) {
  pair p;
  begin(&p, L, "sigmoid_backward", 2, 2, false, 1);
  const mt_status status = check_same(&p, "x");
  if (status != MT_OK) return fail(&p, status);
  mt_calc *c = &p.calc;
  mt_tensor *y = mt_c1(c, MT_OP_sigmoid, p.in[0]);
  mt_tensor *slope = mt_c2(c, MT_OP_mul, y, mt_c2(c, MT_OP_sub, mt_cnum(c, 1), y));
  mt_tensor *dx = mt_c2(c, MT_OP_mul, p.in[1], slope);
  return end_reordered(&p, &dx);
}

/* y = x:tanh_forward() */
static int tanh_forward(lua_State *L) {
  return activation(L, "tanh_forward", MT_OP_tanh);
}

/* dx = x:tanh_backward(dy): dy * (1 - y * y), y = tanh(x) */
static int tanh_backward(lua_State *L) {
  pair p;
  begin(&p, L, "tanh_backward", 2, 2, false, 1);
  const mt_status status = check_same(&p, "x");
  if (status != MT_OK) return fail(&p, status);
  mt_calc *c = &p.calc;
  mt_tensor *square = mt_c1(c, MT_OP_square, mt_c1(c, MT_OP_tanh, p.in[0]));
  mt_tensor *slope = mt_c2(c, MT_OP_sub, mt_cnum(c, 1), square);
  mt_tensor *dx = mt_c2(c, MT_OP_mul, p.in[1], slope);
  return end_reordered(&p, &dx);
}

/* ---- fully connected ---- */

/* y = nn.fc_forward(x, w, b): x (..., in), w (out, in), b (out) or nil; y (..., out) */
static int fc_forward(lua_State *L) {
  pair p;
  begin(&p, L, "fc_forward", 3, 3, true, 1);
  mt_tensor *y = mt_ca(&p.calc, MT_OP_linear, 3, p.in, 4, 0, NULL, NULL);
  return end(&p, &y);
}

static mt_status check_fc(const mt_view *x, const mt_view *w, const mt_view *dy) {
  if (x->ndim == 0) return mt_fail_arg(MT_ESHAPE, 1, "input is 0-dim, want (..., in)");
  if (w->ndim != 2)
    return mt_fail_arg(MT_ESHAPE, 2, "weight has shape %s, want (out, in)",
                       mt_view_text(w));
  const long long nin = x->shape[x->ndim - 1], wants = w->shape[1];
  if (nin != wants)
    return mt_fail_arg(MT_ESHAPE, 2, "input %s has %lld features, weight %s wants %lld",
                       mt_view_text(x), nin, mt_view_text(w), wants);
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  shape[x->ndim - 1] = w->shape[0];
  return mt_check_dy(dy, x->ndim, shape, 3);
}

/* dx, dw, db = nn.fc_backward(x, w, dy): dy (..., out) */
static int fc_backward(lua_State *L) {
  pair p;
  begin(&p, L, "fc_backward", 3, 3, false, 3);
  mt_calc *c = &p.calc;
  mt_tensor *x = p.in[0], *w = p.in[1], *dy = p.in[2];
  const mt_status status = check_fc(&x->v, &w->v, &dy->v);
  if (status != MT_OK) return fail(&p, status);
  mt_tensor *both[MT_MAX_OUTPUTS] = {NULL};
  mt_ca(c, MT_OP__linear_backward_weight, 2, (mt_tensor *[]){x, dy}, 0, 0, NULL, both);
  mt_tensor *y[] = {mt_c2(c, MT_OP_matmul, dy, w), both[0], both[1]};
  return end_reordered(&p, y);
}

/* ---- windows ---- */

static int64_t integer(lua_State *L, int arg, const char *fname, int64_t preset) {
  return lua_isnoneornil(L, arg) ? preset : mtl_check_int(L, arg, fname);
}

/* Heights and widths from arg on: kernel (if has_kernel), stride, padding. Not given:
** kernel's width is its height, stride 1 or like the kernel, padding 0. Raises: comes
** before begin. */
static mt_window check_window(lua_State *L, int arg, const char *fname,
                              bool has_kernel) {
  mt_window w = {.kernel = {1, 1}, .dilation = {1, 1}};
  if (has_kernel) {
    w.kernel[0] = mtl_check_int(L, arg, fname);
    w.kernel[1] = integer(L, arg + 1, fname, w.kernel[0]);
    arg += 2;
  }
  for (int i = 0; i < 2; i++) {
    w.stride[i] = integer(L, arg + i, fname, w.kernel[i]);
    w.padding[i] = integer(L, arg + 2 + i, fname, 0);
  }
  return w;
}

/* y = nn.conv_forward(x, w, b, stride_h, stride_w, pad_h, pad_w): x (N, C, H, W),
** w (K, C, KH, KW), b (K) or nil; y (N, K, OH, OW). Strides are 1, pads 0 if not given. */
static int conv_forward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .w = 2, .b = 3, .stride = 4, .padding = 6};
  pair p;
  mt_window win = check_window(L, 4, "conv_forward", false);
  begin(&p, L, "conv_forward", 7, 3, true, 1);
  int64_t shape[4];
  const mt_status status = mt_check_conv(
      &p.in[0]->v, &p.in[1]->v, p.in[2] ? &p.in[2]->v : NULL, &win, 1, &arg, shape);
  if (status != MT_OK) return fail(&p, status);
  const mt_attr attr[] = {mt_attr_list(2, win.stride), mt_attr_list(2, win.padding)};
  mt_tensor *y = mt_ca(&p.calc, MT_OP_conv2d, 3, p.in, 4, 2, attr, NULL);
  return end(&p, &y);
}

/* dx, dw, db = nn.conv_backward(x, w, dy, stride_h, stride_w, pad_h, pad_w):
** dy (N, K, OH, OW) */
static int conv_backward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .w = 2, .dy = 3, .stride = 4, .padding = 6};
  pair p;
  mt_window win = check_window(L, 4, "conv_backward", false);
  begin(&p, L, "conv_backward", 7, 3, false, 3);
  mt_tensor *x = p.in[0], *w = p.in[1], *dy = p.in[2];
  int64_t shape[4];
  mt_status status = mt_check_conv(&x->v, &w->v, NULL, &win, 1, &arg, shape);
  if (status == MT_OK) status = mt_check_dy(&dy->v, 4, shape, arg.dy);
  if (status != MT_OK) return fail(&p, status);
  mt_attr attr[] = {mt_attr_list(2, x->v.shape + 2), mt_attr_list(2, win.stride),
                    mt_attr_list(2, win.padding)};
  mt_tensor *y[3];
  y[0] = call(&p, MT_OP_conv2d_backward_input, w, dy, 3, attr);
  attr[0] = mt_attr_list(2, win.kernel);
  y[1] = call(&p, MT_OP_conv2d_backward_weight, x, dy, 3, attr);
  const mt_attr dims = mt_attr_list(3, (int64_t[]){0, 2, 3});
  y[2] = mt_c1a(&p.calc, MT_OP_sum, dy, 1, &dims);
  return end_reordered(&p, y);
}

/* y, mask = nn.maxpool_forward(x, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w):
** x (N, C, H, W) or (C, H, W); mask int64, y's shape: the position from 1 in x's H x W
** plane. kernel_w is kernel_h, strides are the kernel's sizes, pads 0 if not given. */
static int maxpool_forward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .kernel = 2, .stride = 4, .padding = 6};
  pair p;
  const mt_window win = check_window(L, 2, "maxpool_forward", true);
  begin(&p, L, "maxpool_forward", 7, 1, false, 2);
  int64_t shape[4];
  const mt_status status = mt_check_pool(&p.in[0]->v, &win, true, &arg, shape);
  if (status != MT_OK) return fail(&p, status);
  const mt_attr attr[] = {mt_attr_list(2, win.kernel), mt_attr_list(2, win.stride),
                          mt_attr_list(2, win.padding)};
  mt_tensor *y[2] = {NULL};
  mt_ca(&p.calc, MT_OP_max_pool2d, 1, p.in, 0, 3, attr, y);
  return end_reordered(&p, y);
}

/* dx = nn.maxpool_backward(x, mask, dy, kernel_h, kernel_w, stride_h, stride_w, pad_h,
** pad_w): dy added at the positions of mask to zeros of x's shape */
static int maxpool_backward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .kernel = 4, .stride = 6, .padding = 8};
  pair p;
  const mt_window win = check_window(L, 4, "maxpool_backward", true);
  begin(&p, L, "maxpool_backward", 9, 3, false, 1);
  const mt_view *x = &p.in[0]->v, *mask = &p.in[1]->v, *dy = &p.in[2]->v;
  int64_t shape[4];
  mt_status status = mt_check_pool(x, &win, true, &arg, shape);
  if (status == MT_OK) status = mt_check_dy(dy, x->ndim, shape, 3);
  if (status == MT_OK && !mt_same_shape(mask, dy))
    status = mt_fail_arg(MT_ESHAPE, 2, "mask has shape %s, dy %s", mt_view_text(mask),
                         mt_view_text(dy));
  if (status == MT_OK && !MT_IS_INT(mask->dtype))
    status = mt_fail_arg(MT_EDTYPE, 2, "mask is %s, want maxpool_forward's int64",
                         mt_dtype_name(mask->dtype));
  if (status != MT_OK) return fail(&p, status);
  const mt_attr size = mt_attr_list(2, x->shape + x->ndim - 2);
  mt_tensor *dx = call(&p, MT_OP_max_pool2d_backward, p.in[1], p.in[2], 1, &size);
  return end_reordered(&p, &dx);
}

/* y = nn.avgpool_forward(x, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w): as
** maxpool_forward; the mean of each window, the padding counted */
static int avgpool_forward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .kernel = 2, .stride = 4, .padding = 6};
  pair p;
  const mt_window win = check_window(L, 2, "avgpool_forward", true);
  begin(&p, L, "avgpool_forward", 7, 1, false, 1);
  int64_t shape[4];
  const mt_status status = mt_check_pool(&p.in[0]->v, &win, false, &arg, shape);
  if (status != MT_OK) return fail(&p, status);
  const mt_attr attr[] = {mt_attr_list(2, win.kernel), mt_attr_list(2, win.stride),
                          mt_attr_list(2, win.padding)};
  mt_tensor *y = mt_c1a(&p.calc, MT_OP_avg_pool2d, p.in[0], 3, attr);
  return end_reordered(&p, &y);
}

/* dx = nn.avgpool_backward(x, dy, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w) */
static int avgpool_backward(lua_State *L) {
  const mt_window_args arg = {.x = 1, .kernel = 3, .stride = 5, .padding = 7};
  pair p;
  const mt_window win = check_window(L, 3, "avgpool_backward", true);
  begin(&p, L, "avgpool_backward", 8, 2, false, 1);
  const mt_view *x = &p.in[0]->v;
  int64_t shape[4];
  mt_status status = mt_check_pool(x, &win, false, &arg, shape);
  if (status == MT_OK) status = mt_check_dy(&p.in[1]->v, x->ndim, shape, 2);
  if (status != MT_OK) return fail(&p, status);
  const mt_attr attr[] = {mt_attr_list(2, x->shape + x->ndim - 2),
                          mt_attr_list(2, win.kernel), mt_attr_list(2, win.stride),
                          mt_attr_list(2, win.padding)};
  mt_tensor *dx = mt_c1a(&p.calc, MT_OP_avg_pool2d_backward, p.in[1], 4, attr);
  return end_reordered(&p, &dx);
}

/* ---- softmax, cross entropy ---- */

/* y = nn.softmax_forward(x): over the last dim */
static int softmax_forward(lua_State *L) {
  return activation(L, "softmax_forward", MT_OP_softmax);
}

/* dx = nn.softmax_backward(y, dy): y is softmax_forward's result */
static int softmax_backward(lua_State *L) {
  pair p;
  begin(&p, L, "softmax_backward", 2, 2, false, 1);
  const mt_status status = check_same(&p, "y");
  if (status != MT_OK) return fail(&p, status);
  mt_tensor *dx = call(&p, MT_OP_softmax_backward, p.in[0], p.in[1], 0, NULL);
  return end(&p, &dx);
}

/* loss = nn.cross_entropy_forward(logits, labels): the mean over the batch; logits (N, C)
** (or (C), (N, C, ...)), labels (N) of any integer dtype, or floats that are whole */
static int cross_entropy_forward(lua_State *L) {
  pair p;
  begin(&p, L, "cross_entropy_forward", 2, 2, false, 1);
  mt_tensor *loss = call(&p, MT_OP_cross_entropy, p.in[0], p.in[1], 0, NULL);
  return end(&p, &loss);
}

/* dlogits = nn.cross_entropy_backward(logits, labels): of that mean */
static int cross_entropy_backward(lua_State *L) {
  pair p;
  begin(&p, L, "cross_entropy_backward", 2, 2, false, 1);
  mt_calc *c = &p.calc;
  const mt_tensor *logits = p.in[0];
  const mt_dtype dtype =
      MT_IS_FLOAT(mt_dtype_of(logits)) ? mt_dtype_of(logits) : c->ctx->default_dtype;
  mt_tensor *one = mt_cones(c, dtype, mt_device_of(logits), 0, NULL);
  mt_tensor *dx = mt_c3(c, MT_OP_cross_entropy_backward, p.in[0], p.in[1], one);
  return end(&p, &dx);
}

static const luaL_Reg methods[] = {{"relu_forward", relu_forward},
                                   {"relu_backward", relu_backward},
                                   {"sigmoid_forward", sigmoid_forward},
                                   {"sigmoid_backward", sigmoid_backward},
                                   {"tanh_forward", tanh_forward},
                                   {"tanh_backward", tanh_backward},
                                   {NULL, NULL}};

static const luaL_Reg functions[] = {{"fc_forward", fc_forward},
                                     {"fc_backward", fc_backward},
                                     {"conv_forward", conv_forward},
                                     {"conv_backward", conv_backward},
                                     {"maxpool_forward", maxpool_forward},
                                     {"maxpool_backward", maxpool_backward},
                                     {"avgpool_forward", avgpool_forward},
                                     {"avgpool_backward", avgpool_backward},
                                     {"softmax_forward", softmax_forward},
                                     {"softmax_backward", softmax_backward},
                                     {"cross_entropy_forward", cross_entropy_forward},
                                     {"cross_entropy_backward", cross_entropy_backward},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_pairs(lua_State *L) {
  luaL_getsubtable(L, -1, "nn");
  luaL_setfuncs(L, functions, 0);
  lua_pop(L, 1);
  mtl_push_methods(L);
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
}
