-- spec/support/errors/in_place.lua: wrong calls and what they say: in-place forms.
return {
  { "mt.zeros(2):add_(mt.zeros(3, 2))",
    "calling 'add_' on bad self (in place: shape [2] cannot hold a result of "
      .. "shape [3, 2])" },
  { 'mt.ones({2}, {dtype = "int64"}):add_(1.5)',
    "calling 'add_' on bad self (in place: a tensor of int64 cannot hold a result of "
      .. "float32)" },
  { 'mt.ones({2}, {dtype = "int64"}):exp_()',
    "calling 'exp_' on bad self (in place: a tensor of int64 cannot hold a result of "
      .. "float32)" },
  { "mt.ones(1):expand(4):add_(1)",
    "calling 'add_' on bad self (in place: elements of shape [4] share memory, as "
      .. "those of an expanded tensor do; clone it first)" },
  { "mt.zeros(6):unfold(1, 3, 1):add_(1)",
    "calling 'add_' on bad self (in place: elements of shape [4, 3] share memory, as "
      .. "those of an expanded tensor do; clone it first)" },
  { "mt.ones({2}, {requires_grad = true}):add_(1)",
    "calling 'add_' on bad self (a leaf that requires grad cannot be changed in "
      .. "place while recording is on)" },
  { "mt.zeros(2):copy_(mt.zeros(3))",
    "bad argument #1 to 'copy_' (shape [3] does not broadcast to shape [2])" },
  { "mt.ones({2, 3}, {requires_grad = true}):t_()",
    "calling 't_' on bad self (a leaf that requires grad keeps its shape)" },
  { "mt.zeros(2, 3):transpose_(1, 3)",
    "bad argument #2 to 'transpose_' (dim 3 is out of range for shape [2, 3]: 1 .. 2 "
      .. "or -2 .. -1)" },
  { "mt.zeros(3):eq_(mt.zeros(2, 3))",
    "calling 'eq_' on bad self (the result of shape [2, 3], bool does not fit in place "
      .. "into shape [3], float32)" },
  { "mt.zeros(3):mT()",
    "calling 'mT' on bad self (at least 2 dims expected, got shape [3])" },
  { 'mt.zeros(2):fill_("x")',
    "bad argument #1 to 'fill_' (value: number expected, got string)" },
  { 'mt.ones({2}, {dtype = "uint8"}):fill_(-1)',
    "bad argument #1 to 'fill_' (value is -1: uint8 holds 0 .. 255)" },
  { 'mt.ones({2}, {dtype = "int64"}):fill_(1e30)',
    "bad argument #1 to 'fill_' (value is 1e+30: int64 holds -9223372036854775808 .. "
      .. "9223372036854775807)" },
  { "(function() local x = mt.arange(3, {dtype = 'uint8'}) x[1] = 256 end)()",
    "value is 256: uint8 holds 0 .. 255" },
  { "mt.zeros(3):eq_(mt.zeros(3), 2)",
    "bad argument #2 to 'eq_' (too many arguments, 'eq_' takes 1 at most)" },
  { "mt.eq(mt.zeros(3), mt.zeros(3), 2)",
    "bad argument #3 to 'eq' (too many arguments, 'eq' takes 2 at most)" },
  { "mt.zeros({3}, {dtype = 'uint8'}):map(function() return 300 end)",
    "bad argument #2 to 'map' (element [1] is 300: uint8 holds 0 .. 255)" },
  { "mt.zeros({3}, {dtype = 'uint8'}):apply(function() return 300 end)",
    "bad argument #2 to 'apply' (element [1] is 300: uint8 holds 0 .. 255)" },
  { "mt.arange(257, {dtype = 'uint8'})",
    "bad argument #1 to 'arange' (value is 256: uint8 holds 0 .. 255)" },
  { "mt.arange(-129, 0, {dtype = 'int8'})",
    "bad argument #1 to 'arange' (value is -129: int8 holds -128 .. 127)" },
  { "mt.arange(5, -2, -1, {dtype = 'uint8'})",
    "bad argument #2 to 'arange' (value is -1: uint8 holds 0 .. 255)" },
  { "mt.ones({2, 3}):renorm(0, 1, 1)",
    "bad argument #1 to 'renorm' (p is 0, want more than 0)" },
  { "mt.ones({2, 3}):renorm(2, 1, -1)",
    "bad argument #3 to 'renorm' (most is -1, want 0 or more)" },
}
