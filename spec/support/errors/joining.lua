-- spec/support/errors/joining.lua: wrong calls and what they say: joining, splitting
-- and repeating.
return {
  { "mt.cat({})",
    "bad argument #1 to 'cat' (list of tensors expected, got an empty table)" },
  { "mt.cat(mt.zeros(2), mt.zeros(2))",
    "bad argument #1 to 'cat' (list of tensors expected, got tensor)" },
  { "mt.cat({mt.zeros(2), 3})",
    "bad argument #1 to 'cat' (tensor expected at [2] of the list, got number)" },
  { "mt.cat({mt.zeros(2, 3), mt.zeros(2, 4)}, 1)",
    "bad argument #1 to 'cat' (tensor 2 of shape [2, 4] does not join shape [2, "
      .. "3] along dim 1)" },
  { "mt.cat({mt.zeros(2, 3), mt.zeros(2)}, 1)",
    "bad argument #1 to 'cat' (tensor 2 of shape [2] does not join shape [2, 3] "
      .. "along dim 1)" },
  { "mt.cat({mt.zeros(2, 3)}, 3)",
    "bad argument #2 to 'cat' (dim 3 is out of range for shape [2, 3]: 1 .. 2 or "
      .. "-2 .. -1)" },
  { "mt.cat({mt.tensor(1), mt.tensor(2)})",
    "bad argument #1 to 'cat' (tensor 1 has no dims; stack joins such)" },
  { "mt.stack({mt.zeros(2), mt.zeros(3)})",
    "bad argument #1 to 'stack' (tensor 2 has shape [3], tensor 1 shape [2])" },
  { "mt.stack({mt.zeros(2)}, 3)",
    "bad argument #2 to 'stack' (dim 3 is out of range: 1 .. 2 or -2 .. -1)" },
  { "mt.zeros(4):split(0)",
    "bad argument #1 to 'split' (a size of 1 or more expected)" },
  { "mt.zeros(4):split{1, 2}",
    "bad argument #1 to 'split' (the sizes add up to 3, dim 1 of shape [4] has 4)" },
  { "mt.zeros(4):split{1, 4}",
    "bad argument #1 to 'split' (size[2] is 4, but 3 of shape [4] are left)" },
  { "mt.zeros(4):chunk(0)",
    "bad argument #1 to 'chunk' (1 piece or more expected)" },
  { "mt.tensor(1):chunk(2)",
    "calling 'chunk' on bad self (a 0-dim tensor has no dims to cut)" },
  { "mt.zeros(4):repeat_interleave(-1)",
    "bad argument #1 to 'repeat_interleave' (repeats: -1 is negative)" },
  { "mt.zeros(4):tile(-1)",
    "bad argument #1 to 'tile' (repeats: -1 is negative)" },
  { "mt.zeros(4):flip(2)",
    "bad argument #1 to 'flip' (dim 2 is out of range for shape [4]: 1 .. 1 or "
      .. "-1 .. -1)" },
  { "mt.zeros(4, 2):roll({1, 2}, 1)",
    "bad argument #1 to 'roll' (2 shifts for 1 dims)" },
}
