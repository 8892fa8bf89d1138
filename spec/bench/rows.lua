-- spec/bench/rows.lua: our side of the benchmarks: times rows by name.
--
--   mtlua spec/bench/rows.lua [--device cuda] [--threads n] name ... | -
--
-- `-`: names come from standard input, a line each. For each name one line goes out:
-- `name seconds s [remark]`, the median time of one run of the row, or
-- `name - - reason`. What rows.py calls the same does the same in PyTorch.

local mt = require "mytensor"
local nn = mt.nn

local device, names, from_stdin = "cpu", {}, false
do
  local i = 1
  while arg[i] do
    if arg[i] == "--device" then
      i = i + 1
      device = arg[i]
    elseif arg[i] == "--threads" then
      i = i + 1
      mt.set_num_threads(math.tointeger(arg[i]))
    elseif arg[i] == "-" then
      from_stdin = true
    else
      names[#names + 1] = arg[i]
    end
    i = i + 1
  end
end
local on_gpu = device:find "^cuda" ~= nil
mt.set_default_device(device)

local function synchronise()
  if on_gpu then mt.cuda.synchronize() end
end

-- rows[name]() gives the function to time, then a remark.
local rows = {}

-- Rows of which only the time until everything is asked of the device counts: how many
-- runs, few enough that the device's queue doesn't fill.
local enqueued = {}

-- once[name]() gives the seconds itself.
local once = {}

local function leaf(...)
  return mt.randn(...):requires_grad_()
end

-- ---- products, convolutions: which float --------------------------------------------
local KINDS = { f32 = "highest", tf32 = "high", bf16 = "highest", f16 = "highest" }
local DTYPES = { f32 = "float32", tf32 = "float32", bf16 = "bfloat16", f16 = "float16" }

local function use_kind(kind)
  if mt.set_matmul_precision then
    mt.set_matmul_precision(KINDS[kind])
  elseif kind == "tf32" then
    error("mt has no TF32 yet", 0)
  end
  return DTYPES[kind]
end

local function product(m, n, k, kind, batch)
  return function()
    local dtype = use_kind(kind)
    local a = (batch and mt.randn(batch, m, k) or mt.randn(m, k)):to(dtype)
    local b = (batch and mt.randn(batch, k, n) or mt.randn(k, n)):to(dtype)
    return function() return a:matmul(b) end
  end
end

-- (N, C, H, W) in the order (N, H, W, C), as PyTorch's channels_last.
local function channels_last(t)
  return t:permute(1, 3, 4, 2):contiguous():permute(1, 4, 2, 3)
end

local function conv_args(N, C, H, K, k, stride, pad, kind)
  local dtype = use_kind(kind)
  local x, w = mt.randn(N, C, H, H):to(dtype), (mt.randn(K, C, k, k) * 0.05):to(dtype)
  if kind == "bf16" and on_gpu then x, w = channels_last(x), channels_last(w) end
  return x, w, { stride = stride, padding = pad }
end

local function conv(...)
  local args = table.pack(...)
  return function()
    local x, w, opts = conv_args(table.unpack(args))
    return function() return mt.conv2d(x, w, nil, opts) end
  end, function()
    local x, w, opts = conv_args(table.unpack(args))
    local y = mt.conv2d(x, w, nil, opts)
    local dy = mt.ones_like(y)
    if y:stride()[2] == 1 then dy = channels_last(dy) end
    x:requires_grad_()
    w:requires_grad_()
    return function()
      local again = mt.conv2d(x, w, nil, opts)
      return mt.grad({ again }, { x, w }, { grad_outputs = { dy } })
    end
  end
end

-- With bias and relu, in one pass.
local function conv_relu(...)
  local args = table.pack(...)
  return function()
    local x, w, opts = conv_args(table.unpack(args))
    local b = mt.randn(w:size(1)):to(w:dtype())
    opts.activation = "relu"
    return function() return mt.conv2d(x, w, b, opts) end
  end
end

-- ---- networks -----------------------------------------------------------------------
local function cnn()
  return nn.Sequential(
    nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)),
    function(n) return mt.rand(n, 1, 28, 28) end
end

local function mlp()
  return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
    nn.Linear(128, 10)), function(n) return mt.rand(n, 784) end
end

local function training(network, batch, kind, graph)
  return function()
    local remark
    if not pcall(use_kind, kind) then remark = "ours in float32: no TF32 yet" end
    local model, images = network()
    local x, labels = images(batch), mt.randint(1, 10, batch)
    local criterion = nn.CrossEntropyLoss()
    local optimiser = mt.optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.9 })
    local function step()
      optimiser:zero_grad()
      criterion(model(x), labels):backward()
      optimiser:step()
    end
    return graph and mt.cuda.graph(step) or step, remark
  end
end

local function inference(network, batch)
  return function()
    use_kind "f32"
    local model, images = network()
    local x = images(batch)
    model:eval()
    return function() return mt.no_grad(model, x) end
  end
end

-- ---- small operators ----------------------------------------------------------------
local function small(name, make)
  rows[name] = function() return make(mt.randn(16), mt.randn(16)) end
  rows[name .. "_grad"] = function() return make(leaf(16), leaf(16)) end
  enqueued[name], enqueued[name .. "_grad"] = 300, 300
end

small("op_add", function(a, b) return function() return a + b end end)
small("op_relu", function(a) return function() return a:relu() end end)
small("op_sum", function(a) return function() return a:sum() end end)
small("op_view", function(a) return function() return a:view(4, 4) end end)
local function matmul4(make)
  return function()
    use_kind "f32"
    local a, b = make(4, 4), make(4, 4)
    return function() return a:matmul(b) end
  end
end
rows.op_matmul4, rows.op_matmul4_grad = matmul4(mt.randn), matmul4(leaf)
enqueued.op_matmul4, enqueued.op_matmul4_grad, enqueued.op_add_kernel = 300, 300, 300

function rows.op_add_inplace()
  local a, b = mt.zeros(16), mt.zeros(16)
  return function() a:add_(b) end
end

function rows.op_add_kernel()
  local add = mt.cuda.kernel { source = [[
    __global__ void add(const float *x, const float *y, float *z, int n) {
      if (threadIdx.x < n) z[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x]; }]] }
  local a, b, c = mt.randn(16), mt.randn(16), mt.empty(16)
  return function() add(a, b, c, 16) end, "through mt.cuda.kernel; PyTorch: its own add"
end

function rows.op_empty()
  return function() return mt.empty(16) end
end

function rows.op_forward_backward()
  local a, b = leaf(16), leaf(16)
  return function()
    a.grad, b.grad = nil, nil
    return (a * b + a):relu():sum():backward()
  end
end

function rows.op_add_backward()
  local a, b = leaf(16), leaf(16)
  return function()
    a.grad, b.grad = nil, nil
    return (a + b):sum():backward()
  end
end
enqueued.op_forward_backward, enqueued.op_add_backward = 50, 50

-- ---- memory-bound operators ---------------------------------------------------------
-- On the CPU vectors of 2^24 and 4096 x 4096; on the GPU 2^28 and 16384 x 16384.
local LENGTH = on_gpu and 1 << 28 or 1 << 24
local SIDE = on_gpu and 16384 or 4096

local function vector(make)
  return function() return make(mt.rand(LENGTH)) end
end

local function matrix(make, rows_, columns)
  return function()
    local n, m = rows_ or SIDE, columns or SIDE
    return make(mt.rand(n, m), m)
  end
end

rows.copy = vector(function(x)
  local y = mt.empty_like(x)
  return function() y:copy_(x) end
end)
rows.add = vector(function(x)
  local y = mt.rand(LENGTH)
  return function() return x + y end
end)
rows.add_inplace = vector(function(x)
  local y = mt.zeros(LENGTH)
  return function() x:add_(y) end, "the baseline's row gives out; ours take none"
end)
for _, name in ipairs { "relu", "exp", "sigmoid", "tanh", "gelu", "sum" } do
  rows[name] = vector(function(x)
    local op = x[name]
    return function() return op(x) end
  end)
end
rows.fill = vector(function(x) return function() x:fill_(1.5) end end)
rows.fmod = vector(function(x)
  local y = mt.rand(LENGTH) + 0.1
  return function() return x:fmod(y) end
end)
function rows.randperm()
  return function() return mt.randperm(1 << 20) end
end
rows.randn = vector(function(x) return function() x:normal_() end end)
rows.uniform = vector(function(x) return function() x:uniform_() end end)

rows.sum_dim0 = matrix(function(x) return function() return x:sum(1) end end)
rows.sum_dim1 = matrix(function(x) return function() return x:sum(2) end end)
rows.max_dim1 = matrix(function(x) return function() return x:max(2) end end)
rows.argmax_dim0 = matrix(function(x) return function() return x:argmax(1) end end)
rows.cumsum_dim1 = matrix(function(x) return function() return x:cumsum(2) end end)
rows.transpose = matrix(function(x)
  return function() return x:t():contiguous() end
end)
rows.add_row = matrix(function(x, m)
  local row = mt.rand(m)
  return function() return x + row end
end)
rows.add_column = matrix(function(x)
  local column = mt.rand(x:size(1), 1)
  return function() return x + column end
end)

local function softmax(x)
  return function() return x:softmax(2) end
end
rows.softmax_1024 = matrix(softmax, on_gpu and LENGTH // 1024 or 8192, 1024)
rows.softmax_32768 = matrix(softmax, 8192, 32768)
rows.layernorm = matrix(function(x, m)
  local layer = nn.LayerNorm(m)
  return function() return mt.no_grad(layer, x) end
end, on_gpu and LENGTH // 1024 or 8192, 1024)

function rows.permute_nchw_nhwc()
  local x = mt.rand(256, 64, 128, 128)
  return function() return x:permute(1, 3, 4, 2):contiguous() end
end

-- Fused operators, and sorting and selecting, have files of their own.
local folder = arg[0]:match "^.*/" or ""
dofile(folder .. "rows_fuse.lua")(rows, once, enqueued, vector, matrix,
  on_gpu and LENGTH // 1024 or 8192)
dofile(folder .. "rows_sort.lua")(rows, on_gpu, LENGTH, SIDE)

function rows.embedding()
  local weight, index = mt.rand(50304, 1024), mt.randint(1, 50304, 65536)
  return function() return mt.embedding(weight, index) end
end

local function cross_entropy_args()
  return mt.randn(8192, 50304), mt.randint(1, 50304, 8192)
end
function rows.xent()
  local x, labels = cross_entropy_args()
  return function() return mt.cross_entropy(x, labels) end
end
function rows.xent_fwdbwd()
  local x, labels = cross_entropy_args()
  x:requires_grad_()
  return function()
    return mt.grad({ mt.cross_entropy(x, labels) }, { x })
  end
end

-- ---- products and the rest ----------------------------------------------------------
for _, n in ipairs { 256, 1024, 2048, 4096, 8192 } do
  for kind in pairs(KINDS) do
    rows[("matmul_%d_%s"):format(n, kind)] = product(n, n, n, kind)
  end
end
rows.bmm = product(128, 128, 64, "f32", 32)
rows.bmm_512x256_f32 = product(256, 256, 256, "f32", 512)
function rows.linear()
  local x, w = mt.randn(64, 784), mt.randn(256, 784)
  return function() return mt.linear(x, w) end
end
function rows.linear_gelu_bf16()
  use_kind "bf16"
  local x, w = mt.randn(4096, 4096):bfloat16(), mt.randn(4096, 4096):bfloat16()
  local b = mt.randn(4096):bfloat16()
  return function() return mt.linear(x, w, b):gelu() end
end

rows.conv_small_relu = conv_relu(32, 16, 28, 32, 3, 1, 1, "f32")
rows.conv_large_relu = conv_relu(16, 64, 56, 64, 3, 1, 1, "f32")
rows.conv_small, rows.conv_small_fwdbwd = conv(32, 16, 28, 32, 3, 1, 1, "f32")
rows.conv_large, rows.conv_large_fwdbwd = conv(16, 64, 56, 64, 3, 1, 1, "f32")
-- PyTorch's channels_last against what we take as it is.
rows.conv_small_nhwc, rows.conv_large_nhwc = rows.conv_small, rows.conv_large
rows.conv_small_bf16 = conv(32, 16, 28, 32, 3, 1, 1, "bf16")
rows.conv_large_bf16 = conv(16, 64, 56, 64, 3, 1, 1, "bf16")
local SHAPES = {
  N64C64H56K64k3s1 = { 64, 64, 56, 64, 3, 1, 1 },
  N64C256H14K256k3s1 = { 64, 256, 14, 256, 3, 1, 1 },
  N64C3H224K64k7s2 = { 64, 3, 224, 64, 7, 2, 3 },
  N64C256H56K64k1s1 = { 64, 256, 56, 64, 1, 1, 0 },
  N512C1H28K32k5s1 = { 512, 1, 28, 32, 5, 1, 0 },
}
for shape, sizes in pairs(SHAPES) do
  for _, kind in ipairs { "f32", "tf32", "bf16" } do
    local args = table.move(sizes, 1, 7, 1, {})
    args[8] = kind
    local name = ("conv_%s_%s"):format(shape, kind)
    rows[name], rows[name .. "_fwdbwd"] = conv(table.unpack(args))
    rows[name .. "_relu"] = conv_relu(table.unpack(args))
  end
end

for _, batch in ipairs { 64, 512, 4096 } do
  rows["cnn_train_" .. batch] = training(cnn, batch, on_gpu and "tf32" or "f32")
  rows["mlp_train_" .. batch] = training(mlp, batch, "f32")
  rows["cnn_graph_" .. batch] = training(cnn, batch, "tf32", true)
  rows["mlp_graph_" .. batch] = training(mlp, batch, "f32", true)
end
rows.cnn_infer_64, rows.mlp_infer_64 = inference(cnn, 64), inference(mlp, 64)

-- ---- optimisers ---------------------------------------------------------------------
local function adam(count, ...)
  local shape = { ... }
  return function()
    local list = {}
    for i = 1, count do
      list[i] = mt.zeros(shape):requires_grad_()
      list[i].grad = mt.ones(shape)
    end
    local optimiser = mt.optim.Adam(list)
    return function() optimiser:step() end, nil, list
  end
end
rows.adam_800, rows.adam_large = adam(800, 64, 64), adam(4, 1 << 26)
function rows.clip_norm_800()
  local _, _, list = adam(800, 64, 64)()
  return function() return mt.nn.utils.clip_grad_norm_(list, 1) end
end

-- ---- copies between host and device -------------------------------------------------
local function copies(pinned)
  local host, there
  local function make()
    host, there = mt.ones({ 1 << 26 }, { device = "cpu" }), mt.zeros(1 << 26)
    if pinned then host = host:pin_memory() end
  end
  return function()
    make()
    return function() return there:copy_(host) end
  end, function()
    make()
    return function() return host:copy_(there) end
  end
end
rows.h2d_pageable, rows.d2h_pageable = copies(false)
rows.h2d_pinned, rows.d2h_pinned = copies(true)

dofile((arg[0]:match "^.*/" or "") .. "rows_einsum.lua")(rows, on_gpu)

-- ---- timing -------------------------------------------------------------------------
local BLOCK, BLOCKS, WARM_UP = 0.03, 3, 0.06 -- seconds, how many, seconds

-- Seconds that n runs take; of an enqueued row without the device's work.
local function time(run, n, only_enqueue)
  synchronise()
  local start = mt._clock()
  for _ = 1, n do run() end
  if not only_enqueue then synchronise() end
  local seconds = mt._clock() - start
  synchronise()
  return seconds
end

-- The row asked for last stays ready: the driver asks for it several times.
local last = {}

local function prepare(name)
  last = {}
  collectgarbage()
  collectgarbage()
  local make = assert(rows[name], "no such row")
  local run, remark = make()
  local queue = on_gpu and enqueued[name]
  local start, n = mt._clock(), 1
  local seconds = time(run, 1)
  while mt._clock() - start < WARM_UP do
    if seconds < 0.01 then n = n * 2 end
    seconds = time(run, n)
  end
  local count = queue or math.max(1, math.ceil(BLOCK * n / seconds))
  last = { name = name, run = run, count = count, queue = queue, remark = remark }
end

local function measure(name)
  if once[name] then return once[name]() end
  if last.name ~= name then prepare(name) end
  local row, times = last, {}
  time(row.run, 1)
  for i = 1, BLOCKS do times[i] = time(row.run, row.count, row.queue) / row.count end
  table.sort(times)
  return times[BLOCKS // 2 + 1], row.remark
end

local function answer(name)
  if name == "about" then
    local info = mt.info()
    print(("about - - mytensor %s, %s"):format(info.version, info.lua))
    return
  end
  local ok, seconds, remark = pcall(measure, name)
  if ok then
    print(("%s %.9g s %s"):format(name, seconds, remark or ""))
  else
    last = {}
    print(("%s - - %s"):format(name, tostring(seconds):gsub("%s+", " ")))
  end
  io.stdout:flush()
end

for _, name in ipairs(names) do answer(name) end
if from_stdin then
  io.stdout:setvbuf "line"
  for name in io.lines() do answer(name) end
end
