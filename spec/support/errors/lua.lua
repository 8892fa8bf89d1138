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
}
