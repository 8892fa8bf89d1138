-- spec/support/errors/products.lua: wrong calls and what they say: products.
return {
  { "mt.zeros(2, 3):matmul(mt.zeros(4, 5))",
    "bad argument #1 to 'matmul' (shapes [2, 3] and [4, 5] do not multiply: 3 ~= "
      .. "4)" },
  { "mt.matmul(mt.zeros(2, 3), mt.zeros(4, 5))",
    "bad argument #2 to 'matmul' (shapes [2, 3] and [4, 5] do not multiply: 3 ~= "
      .. "4)" },
  { "mt.matmul(mt.zeros(3), mt.zeros(4))",
    "bad argument #2 to 'matmul' (shapes [3] and [4] do not multiply: 3 ~= 4)" },
  { "mt.matmul(mt.tensor(1), mt.zeros(4))",
    "bad argument #1 to 'matmul' (shapes [] and [4] do not multiply: 0-dim, use "
      .. "*)" },
  { "mt.matmul(mt.zeros(2, 3, 4), mt.zeros(5, 4, 2))",
    "bad argument #2 to 'matmul' (shapes [2, 3, 4] and [5, 4, 2] do not "
      .. "multiply: their batches [2] and [5] do not broadcast)" },
  { "mt.matmul(mt.zeros(2), 3)",
    "bad argument #2 to 'matmul' (tensor expected, got number)" },
  { "mt.zeros(2, 3):mm(mt.zeros(2, 3))",
    "bad argument #1 to 'mm' (shapes [2, 3] and [2, 3] do not multiply: 3 ~= 2)" },
  { "mt.matmul(mt.tensor{true}, mt.tensor{true})",
    "bad argument #1 to 'matmul' (bool is not supported; convert with "
      .. ':to("int64"))' },
  { "mt.linear(mt.zeros(2, 3), mt.zeros(4, 5))",
    "bad argument #2 to 'linear' (input [2, 3] has 3 features, weight [4, 5] "
      .. "wants 5)" },
  { "mt.linear(mt.zeros(2, 3), mt.zeros(3))",
    "bad argument #2 to 'linear' (weight has shape [3], want (out, in))" },
  { "mt.linear(mt.zeros(2, 3), mt.zeros(4, 3), mt.zeros(3))",
    "bad argument #3 to 'linear' (bias [3] does not fit weight [4, 3]: want [4])" },
  { "mt.linear(mt.zeros(2, 3), mt.zeros(4, 3), nil, 'tanh')",
    "bad argument #4 to 'linear' (activation: 'tanh' is none of none|relu|gelu)" },
  { "mt.linear(mt.tensor(1), mt.zeros(4, 3))",
    "bad argument #1 to 'linear' (input is 0-dim, want (..., in))" },
}
