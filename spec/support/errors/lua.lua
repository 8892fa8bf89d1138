-- spec/support/errors/lua.lua: wrong calls and what they say: the Lua parts.
return {
  { "mt.gradcheck(5)",
    "bad argument #1 to 'gradcheck' (function expected, got integer)" },
  { "mt.nn.Linear(2)",
    "bad argument #2 to 'Linear' (number of features out must be an integer, got "
      .. "nil)" },
  { "mt.optim.SGD({}, {lr = 0.1})",
    "bad argument #1 to 'SGD' (the list of parameters is empty)" },
}
