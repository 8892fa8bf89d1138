-- spec/support/errors/reductions.lua: wrong calls and what they say: reductions.
return {
  { "mt.zeros(2):sum({[{}] = 1})",
    "bad argument #1 to 'sum' (dim: a list of integers has keys that are no "
      .. "positions, or holes)" },
  { "mt.zeros(2, 3):sum(3)",
    "bad argument #1 to 'sum' (dim 3 is out of range for shape [2, 3]: 1 .. 2 or "
      .. "-2 .. -1)" },
  { "mt.zeros(2, 3):sum(0)",
    "bad argument #1 to 'sum' (dim 0 is out of range for shape [2, 3]: 1 .. 2 or "
      .. "-2 .. -1)" },
  { "mt.zeros(2, 3):sum{1, 1}",
    "bad argument #1 to 'sum' (dim 1 stands twice)" },
  { "mt.zeros(2, 3):sum{1, -2}",
    "bad argument #1 to 'sum' (dim -2 stands twice)" },
  { "mt.zeros(2, 3):sum(1.5)",
    "bad argument #1 to 'sum' (dim: integer expected, got 1.5)" },
  { 'mt.zeros(2, 3):sum("a")',
    "bad argument #1 to 'sum' (dim: dim or list of dims expected, got string)" },
  { "mt.zeros(2, 3):sum{dims = 1}",
    "bad argument #1 to 'sum' (unknown option 'dims'; 'sum' takes dim, keepdim)" },
  { "mt.zeros(2, 3):sum{axis = 3}",
    "bad argument #1 to 'sum' (option 'dim': dim 3 is out of range for shape [2, 3]: "
      .. "1 .. 2 or -2 .. -1)" },
  { "mt.zeros(3):diff{first = 1}", "bad argument #1 to 'diff' (unknown option 'first'; "
    .. "'diff' takes n, dim, prepend, append)" },
  { "mt.ones(3):bincount{weight = 1}", "bad argument #1 to 'bincount' "
    .. "(unknown option 'weight'; 'bincount' takes weights, minlength)" },
  { "mt.zeros(2, 3):sum(1, 1)",
    "bad argument #2 to 'sum' (keepdim: boolean expected, got number)" },
  { "mt.zeros(2, 3):sum(1, true, 2)",
    "bad argument #3 to 'sum' (too many arguments, 'sum' takes 2 at most)" },
  { "mt.zeros(2, 0):max(2)",
    "calling 'max' on bad self (dim 2 of shape [2, 0] has no elements to choose "
      .. "from)" },
  { "mt.zeros(0):max()",
    "calling 'max' on bad self (dim 1 of shape [0] has no elements to choose "
      .. "from)" },
  { "mt.zeros(0):amax()",
    "calling 'amax' on bad self (dim 1 of shape [0] has no elements to choose "
      .. "from)" },
  { "mt.zeros(0, 2):argmax(1)",
    "calling 'argmax' on bad self (dim 1 of shape [0, 2] has no elements to "
      .. "choose from)" },
  { "mt.zeros(2):cumsum()",
    "bad argument #1 to 'cumsum' (dim: integer expected, got no value)" },
  { "mt.zeros(2):cumsum(2)",
    "bad argument #1 to 'cumsum' (dim 2 is out of range for shape [2]: 1 .. 1 or "
      .. "-1 .. -1)" },
  { 'mt.zeros(2, {dtype = "int64"}):norm("inf")',
    "bad argument #1 to 'norm' (p: number expected, got string)" },
}
