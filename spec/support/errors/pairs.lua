-- spec/support/errors/pairs.lua: wrong calls and what they say: the forward and
-- backward pairs.
return {
  { "mt.nn.fc_forward(mt.zeros(2, 5), mt.zeros(4, 3), mt.zeros(4))",
    "bad argument #2 to 'fc_forward' (input [2, 5] has 5 features, weight [4, 3] "
      .. "wants 3)" },
  { "mt.nn.fc_backward(mt.zeros(2, 3), mt.zeros(4, 3), mt.zeros(2, 3))",
    "bad argument #3 to 'fc_backward' (dy has shape [2, 3], the forward's result "
      .. "[2, 4])" },
  { "mt.nn.conv_forward(mt.zeros(3, 5, 5), mt.zeros(4, 3, 3, 3), nil, 1, 1, 0, 0)",
    "bad argument #1 to 'conv_forward' (input has shape [3, 5, 5], want 4 dims "
      .. "(N, C, H, W))" },
  { "mt.nn.conv_forward(mt.zeros(2, 3, 5, 5), mt.zeros(4, 2, 3, 3), nil, 1, 1, "
      .. "0, 0)",
    "bad argument #2 to 'conv_forward' (input [2, 3, 5, 5] has 3 channels, "
      .. "weight [4, 2, 3, 3] with 1 groups wants 2)" },
  { "mt.nn.conv_forward(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 6, 3), nil, 1, 1, "
      .. "0, 0)",
    "bad argument #1 to 'conv_forward' (output would be 0 x 3: kernel 6 x 3 does "
      .. "not fit input 5 x 5 with padding 0 x 0)" },
  { "mt.nn.conv_forward(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), mt.zeros(3), "
      .. "1, 1, 0, 0)",
    "bad argument #3 to 'conv_forward' (bias [3] does not fit weight [4, 3, 3, "
      .. "3]: want [4])" },
  { "mt.nn.conv_forward(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), nil, 0, 1, "
      .. "0, 0)",
    "bad argument #4 to 'conv_forward' (stride 0 x 1 is not in 1 .. 2147483647)" },
  { "mt.nn.conv_backward(mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), mt.zeros(2, "
      .. "4, 4, 3), 1, 1, 0, 0)",
    "bad argument #3 to 'conv_backward' (dy has shape [2, 4, 4, 3], the "
      .. "forward's result [2, 4, 3, 3])" },
  { "mt.nn.maxpool_forward(mt.zeros(1, 1, 4, 4), 5, 5, 1, 1, 0, 0)",
    "bad argument #1 to 'maxpool_forward' (output would be 0 x 0: kernel 5 x 5 "
      .. "does not fit input 4 x 4 with padding 0 x 0)" },
  { "mt.nn.maxpool_forward(mt.zeros(4, 4), 2, 2, 1, 1, 0, 0)",
    "bad argument #1 to 'maxpool_forward' (input has shape [4, 4], want (N, C, "
      .. "H, W) or (C, H, W))" },
  { "mt.nn.maxpool_backward(mt.zeros(1, 1, 4, 4), mt.ones({1, 1, 2, 2}, {dtype = "
      .. '"int64"}), mt.zeros(1, 1, 3, 2), 2, 2, 2, 2, 0, 0)',
    "bad argument #3 to 'maxpool_backward' (dy has shape [1, 1, 3, 2], the "
      .. "forward's result [1, 1, 2, 2])" },
  { "mt.nn.maxpool_backward(mt.zeros(1, 1, 4, 4), mt.ones({1, 1, 2, 1}, {dtype = "
      .. '"int64"}), mt.zeros(1, 1, 2, 2), 2, 2, 2, 2, 0, 0)',
    "bad argument #2 to 'maxpool_backward' (mask has shape [1, 1, 2, 1], dy [1, "
      .. "1, 2, 2])" },
  { "mt.nn.maxpool_backward(mt.zeros(1, 1, 4, 4), mt.full({1, 1, 2, 2}, 17, "
      .. '{dtype = "int64"}), mt.zeros(1, 1, 2, 2), 2, 2, 2, 2, 0, 0)',
    "maxpool_backward: value 17 at element 1 is out of range 1 .. 16" },
  { "mt.nn.avgpool_backward(mt.zeros(1, 1, 4, 4), mt.zeros(1, 1, 2, 3), 2, 2, 2, "
      .. "2, 0, 0)",
    "bad argument #2 to 'avgpool_backward' (dy has shape [1, 1, 2, 3], the "
      .. "forward's result [1, 1, 2, 2])" },
  { "mt.nn.softmax_backward(mt.zeros(2, 3), mt.zeros(3, 2))",
    "bad argument #2 to 'softmax_backward' (dy has shape [3, 2], y [2, 3])" },
  { "mt.nn.cross_entropy_forward(mt.zeros(2, 3), mt.tensor{1, 4})",
    "bad argument #2 to 'cross_entropy_forward' (value 4 at element 2 is out of "
      .. "range 1 .. 3)" },
  { "mt.nn.cross_entropy_forward(mt.zeros(2, 3), mt.tensor{1, 2, 3})",
    "bad argument #2 to 'cross_entropy_forward' (labels have shape [3], input "
      .. "[2, 3] wants [2])" },
  { "mt.nn.cross_entropy_backward(mt.zeros(2, 3), mt.tensor{1, 2, 3})",
    "bad argument #2 to 'cross_entropy_backward' (labels have shape [3], input "
      .. "[2, 3] wants [2])" },
  { "mt.zeros(2, 3):relu_backward(mt.zeros(3, 2))",
    "bad argument #1 to 'relu_backward' (dy has shape [3, 2], x [2, 3])" },
  { "mt.zeros(2, 3):sigmoid_backward(mt.zeros(3, 2))",
    "bad argument #1 to 'sigmoid_backward' (dy has shape [3, 2], x [2, 3])" },
  { "mt.zeros(2, 3):tanh_backward(mt.zeros(3, 2))",
    "bad argument #1 to 'tanh_backward' (dy has shape [3, 2], x [2, 3])" },
}
