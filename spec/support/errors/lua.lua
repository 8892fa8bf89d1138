-- spec/support/errors/lua.lua: wrong calls and what they say: the Lua parts.
return {
  { "mt.gradcheck(5)",
    "bad argument #1 to 'gradcheck' (function expected, got integer)" },
  { "mt.nn.Linear(2)",
    "bad argument #2 to 'Linear' (number of features out must be an integer, got "
      .. "nil)" },
  { "mt.optim.SGD({}, {lr = 0.1})",
    "bad argument #1 to 'SGD' (the list of parameters is empty)" },
  { "mt.zeros({2}, {requires_grad = true}):apply(function(x) return x end)",
    "bad argument #1 to 'apply' (a leaf that requires grad cannot be changed in place "
      .. "while recording is on)" },
  { "mt.zeros(1):expand(2):apply(function(x) return x end)",
    "bad argument #1 to 'apply' (in place: elements of shape [2] share memory; clone "
      .. "it first)" },
  { "mt.zeros({2}, {requires_grad = true}):exponential_()",
    "bad argument #1 to 'exponential_' (a leaf that requires grad cannot be changed in "
      .. "place while recording is on)" },
  { "mt.randint_like(mt.ones(2):bool(), 0, 2)",
    "bad argument #2 to 'randint_like' (bool holds 0 .. 1)" },
  { "mt.zeros(2):new_full({2}, 'x')",
    "bad argument #3 to 'new_full' (number expected, got string)" },
  { "mt.zeros(2):new_zeros(-1)",
    "bad argument #2 to 'new_zeros' (size must be at least 0, got -1)" },
  { "mt.ones(2, 2):byte():fill_diagonal_(256)",
    "bad argument #2 to 'fill_diagonal_' (value is 256: uint8 holds 0 .. 255)" },
  { "mt.result_type(mt.zeros(2))",
    "bad argument #2 to 'result_type' (tensor or number expected, got nil)" },
  { "mt.einsum('i,i', nil, mt.zeros(2))",
    "bad argument #2 to 'einsum' (tensor expected, got nil)" },
}
