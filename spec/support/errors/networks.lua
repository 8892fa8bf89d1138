-- spec/support/errors/networks.lua: wrong calls and what they say: the ops of networks.
return {
  { "mt.conv2d(mt.zeros(3, 5, 5), mt.zeros(4, 3, 3, 3))",
    "bad argument #1 to 'conv2d' (input has shape [3, 5, 5], want 4 dims (N, C, "
      .. "H, W))" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3))",
    "bad argument #2 to 'conv2d' (weight has shape [4, 3, 3], want 4 dims (K, C, "
      .. "KH, KW))" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 2, 3, 3))",
    "bad argument #2 to 'conv2d' (input [2, 3, 5, 5] has 3 channels, weight [4, "
      .. "2, 3, 3] with 1 groups wants 2)" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 6, 3))",
    "bad argument #1 to 'conv2d' (output would be 0 x 3: kernel 6 x 3 does not "
      .. "fit input 5 x 5 with padding 0 x 0)" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), nil, {dilation = 3})",
    "bad argument #1 to 'conv2d' (output would be 0 x 0: kernel 3 x 3 with "
      .. "dilation 3 x 3 does not fit input 5 x 5 with padding 0 x 0)" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), mt.zeros(3))",
    "bad argument #3 to 'conv2d' (bias [3] does not fit weight [4, 3, 3, 3]: "
      .. "want [4])" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), nil, 0)",
    "bad argument #4 to 'conv2d' (stride 0 x 0 is not in 1 .. 2147483647)" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), nil, {stride = {1, 2, "
      .. "3}})",
    "bad argument #4 to 'conv2d' (option 'stride': integer or {height, width} "
      .. "expected, got 3 integers)" },
  { "mt.conv2d(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), nil, {padding = -1})",
    "bad argument #4 to 'conv2d' (option 'padding': padding -1 x -1 is not in 0 "
      .. ".. 2147483647)" },
  { "mt.conv2d(mt.zeros(2, 4, 5, 5), mt.zeros(3, 2, 3, 3), nil, {groups = 2})",
    "bad argument #4 to 'conv2d' (option 'groups': 2 groups do not divide 4 "
      .. "input and 3 output channels)" },
  { "mt.conv2d(mt.zeros(2, 4, 5, 5), mt.zeros(3, 4, 3, 3), nil, {groups = 0})",
    "bad argument #4 to 'conv2d' (option 'groups': groups 0 is not positive)" },
  { "mt.conv2d_backward_input(mt.zeros(4, 3, 3, 3), mt.zeros(2, 4, 2, 2), 5)",
    "bad argument #2 to 'conv2d_backward_input' (dy has shape [2, 4, 2, 2], the "
      .. "forward's result [2, 4, 3, 3])" },
  { "mt.conv2d_backward_weight(mt.zeros(2, 3, 5, 5), mt.zeros(2, 4, 2, 2), 3)",
    "bad argument #2 to 'conv2d_backward_weight' (dy has shape [2, 4, 2, 2], the "
      .. "forward's result [2, 4, 3, 3])" },
  { "mt.max_pool2d(mt.zeros(4, 4), 2)",
    "bad argument #1 to 'max_pool2d' (input has shape [4, 4], want (N, C, H, W) "
      .. "or (C, H, W))" },
  { "mt.max_pool2d(mt.zeros(1, 1, 4, 4), 5)",
    "bad argument #1 to 'max_pool2d' (output would be 0 x 0: kernel 5 x 5 does "
      .. "not fit input 4 x 4 with padding 0 x 0)" },
  { "mt.max_pool2d(mt.zeros(1, 1, 4, 4), 2, 1, 2)",
    "bad argument #4 to 'max_pool2d' (padding 2 x 2 is more than half of kernel "
      .. "2 x 2)" },
  { "mt.max_pool2d(mt.zeros(1, 1, 4, 4), {2, 0})",
    "bad argument #2 to 'max_pool2d' (kernel 2 x 0 is not in 1 .. 2147483647)" },
  { "mt.max_pool2d(mt.zeros(1, 1, 4, 4))",
    "bad argument #2 to 'max_pool2d' (kernel: integer or {height, width} "
      .. "expected, got no value)" },
  { "mt.avg_pool2d(mt.zeros(1, 1, 4, 4), 2, 0)",
    "bad argument #3 to 'avg_pool2d' (stride 0 x 0 is not in 1 .. 2147483647)" },
  { "mt.max_pool2d_backward(mt.zeros(1, 1, 2, 2), mt.zeros(1, 1, 2, 2), 4)",
    "bad argument #1 to 'max_pool2d_backward' (mask is float32, want the int64 "
      .. "of max_pool2d)" },
  { "mt.avg_pool2d_backward(mt.zeros(1, 1, 3, 2), 4, 2)",
    "bad argument #1 to 'avg_pool2d_backward' (dy has shape [1, 1, 3, 2], the "
      .. "forward's result [1, 1, 2, 2])" },
  { "mt.softmax(mt.zeros(2, 3), 3)",
    "bad argument #2 to 'softmax' (dim 3 is out of range for shape [2, 3]: 1 .. "
      .. "2 or -2 .. -1)" },
  { "mt.softmax_backward(mt.zeros(2, 3), mt.zeros(3, 2))",
    "bad argument #2 to 'softmax_backward' (dy has shape [3, 2], y [2, 3])" },
  { "mt.layer_norm(mt.tensor(1))",
    "bad argument #1 to 'layer_norm' (input is 0-dim, want (..., n))" },
  { "mt.layer_norm(mt.zeros(2, 3), mt.zeros(2))",
    "bad argument #2 to 'layer_norm' (weight has shape [2], the last 1 dims of input "
      .. "[2, 3] want [3])" },
  { "mt.layer_norm(mt.zeros(2, 3), nil, mt.zeros(3), {dims = 2})",
    "bad argument #3 to 'layer_norm' (bias has shape [3], the last 2 dims of input "
      .. "[2, 3] want [2, 3])" },
  { "mt.layer_norm(mt.zeros(2, 3), nil, nil, 3)",
    "bad argument #4 to 'layer_norm' (dims 3 is out of range for shape [2, 3]: 1 .. "
      .. "2)" },
  { "mt.layer_norm(mt.zeros(2, 3), {epsilon = -1})",
    "bad argument #2 to 'layer_norm' (option 'epsilon': epsilon is -1, want 0 or "
      .. "more)" },
  { "mt.layer_norm_backward(mt.zeros(2, 3), mt.zeros(3, 2))",
    "bad argument #2 to 'layer_norm_backward' (dy has shape [3, 2], x [2, 3])" },
  { "mt.layer_norm_backward(mt.zeros(2, 3), mt.zeros(2, 3), mt.zeros(2))",
    "bad argument #3 to 'layer_norm_backward' (weight has shape [2], the last 1 dims "
      .. "of input [2, 3] want [3])" },
  { "mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, 2, 3}))",
    "bad argument #2 to 'cross_entropy' (labels have shape [3], input [2, 3] "
      .. "wants [2])" },
  { "mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, 4}))",
    "bad argument #2 to 'cross_entropy' (value 4 at element 2 is out of range 1 "
      .. ".. 3)" },
  { 'mt.cross_entropy(mt.zeros(2, 3), mt.tensor({0, 1}, {dtype = "int64"}))',
    "bad argument #2 to 'cross_entropy' (value 0 at element 1 is out of range 1 "
      .. ".. 3)" },
  { 'mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, -4}, {dtype = "int64"}))',
    "bad argument #2 to 'cross_entropy' (value -4 at element 2 is out of range 1 "
      .. ".. 3)" },
  { "mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, 1.5}))",
    "bad argument #2 to 'cross_entropy' (no whole number at element 2: 1.5)" },
  { "mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, 0/0}))",
    "bad argument #2 to 'cross_entropy' (no whole number at element 2: nan)" },
  { "mt.cross_entropy(mt.zeros(2, 3), mt.tensor({true, false}))",
    "bad argument #2 to 'cross_entropy' (labels are bool, want whole numbers "
      .. "from 1)" },
  { "mt.cross_entropy(mt.zeros(2, 0), mt.tensor({1, 1}))",
    "bad argument #1 to 'cross_entropy' (input [2, 0] has no classes)" },
  { 'mt.cross_entropy(mt.zeros(2, 3), mt.tensor({1, 2}), "average")',
    "bad argument #3 to 'cross_entropy' (reduction: 'average' is none of "
      .. "mean|sum|none)" },
  { "mt.nll_loss(mt.tensor(1), mt.tensor(1))",
    "bad argument #1 to 'nll_loss' (input is 0-dim, want (C) or (N, C, ...))" },
  { "mt.mse_loss(mt.zeros(2, 3), mt.zeros(2, 4))",
    "bad argument #2 to 'mse_loss' (target has shape [2, 4], x [2, 3])" },
  { 'mt.mse_loss(mt.zeros(2, 3), mt.zeros(2, 3), {reduction = "max"})',
    "bad argument #3 to 'mse_loss' (option 'reduction': 'max' is none of "
      .. "mean|sum|none)" },
  { "mt.embedding(mt.zeros(4, 2), mt.tensor{5})",
    "bad argument #2 to 'embedding' (value 5 at element 1 is out of range 1 .. 4)" },
  { "mt.embedding(mt.zeros(4), mt.tensor{1})",
    "bad argument #1 to 'embedding' (weight has shape [4], want (rows, features))" },
  { "mt.dropout(mt.zeros(4), 1.5)",
    "bad argument #2 to 'dropout' (p is 1.5, want 0 .. 1)" },
  { 'mt.dropout(mt.zeros(4), "a")',
    "bad argument #2 to 'dropout' (p: number expected, got string)" },
}
