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
  { "mt.cdist(mt.zeros(2, 3), mt.zeros(2, 4))",
    "bad argument #2 to 'cdist' (rows of shapes [2, 3] and [2, 4] differ in length)" },
  { "mt.cdist(mt.zeros(2, 3), mt.zeros(2, 3), -1)",
    "bad argument #3 to 'cdist' (p is -1, want 0 or more)" },
  { "mt.cdist(mt.zeros(2, 3), mt.zeros(2, 3), 0/0)",
    "bad argument #3 to 'cdist' (p is nan, want 0 or more)" },
  { "mt.cdist(mt.zeros(3), mt.zeros(2, 3))",
    "bad argument #1 to 'cdist' (matrices or batches expected, got shape [3])" },
  { "mt.normalize(mt.zeros(2, 3), 2, 3)",
    "bad argument #3 to 'normalize' (dim 3 is out of range for shape [2, 3])" },
  { "mt.normalize(mt.zeros(2, 3), 'x')",
    "bad argument #2 to 'normalize' (p must be a number, got string)" },
  { "mt.normalize(mt.zeros(2, 3), 2, 1, 'x')",
    "bad argument #4 to 'normalize' (epsilon must be a number, got string)" },
  { "mt.cosine_similarity(mt.zeros(2, 3), mt.zeros(4))",
    "cosine_similarity: shapes [2, 3], [4] do not broadcast: dim 2 is 3 and 4" },
  { "mt.cosine_similarity(mt.zeros(2, 3), mt.zeros(3), -3)",
    "bad argument #3 to 'cosine_similarity' (dim -3 is out of range for shape [2, "
      .. "3])" },
  { "mt.matrix_norm(mt.zeros(2, 3), 'fro', {1, 1})",
    "bad argument #3 to 'matrix_norm' (dim 1 stands twice)" },
  { "mt.matrix_norm(mt.zeros(2, 3), 'fro', {1, 3})",
    "bad argument #3 to 'matrix_norm' (dim 3 is out of range for shape [2, 3])" },
  { "mt.einsum(('i,'):rep(50) .. 'i', mt.zeros(2))",
    "bad argument #1 to 'einsum' ('i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,"
      .. "i,i,i...': 51 operands, but 1 tensors)" },
  { "mt.tensordot(mt.ones(2):bool(), mt.ones(2):bool(), 1)",
    "bad argument #1 to 'tensordot' (sums of products of bool are not supported; "
      .. 'convert with :to("int64"))' },
}
