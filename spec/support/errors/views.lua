-- spec/support/errors/views.lua: wrong calls and what they say: views.
return {
  { "mt.zeros(3, 4):view(5, -1)",
    "bad argument #1 to 'view' (shape [3, 4] of 12 elements does not fit shape "
      .. "[5, -1])" },
  { "mt.zeros(3, 4):view(5, 3)",
    "bad argument #1 to 'view' (shape [3, 4] of 12 elements does not fit shape "
      .. "[5, 3])" },
  { "mt.zeros(3, 4):view(-1, -1)",
    "bad argument #1 to 'view' (shape [-1, -1]: only one size can be -1)" },
  { "mt.zeros(3, 4):view(-2, 6)",
    "bad argument #1 to 'view' (shape [-2, 6]: a size is negative)" },
  { 'mt.zeros(3, 4):view("a")',
    "bad argument #1 to 'view' (unknown dtype 'a')" },
  { "mt.zeros(3, 4):view()",
    "bad argument #1 to 'view' (shape: integer or list of integers expected, got "
      .. "no value)" },
  { 'mt.zeros(3, 4):view{shape = {3, "x"}}',
    "bad argument #1 to 'view' (option 'shape': shape[2]: integer expected, got "
      .. "string)" },
  { "mt.zeros(3, 4):transpose(1, 2):view(12)",
    "calling 'view' on bad self (shape [4, 3] with these strides cannot be seen "
      .. "as [12] without a copy: use reshape)" },
  { "mt.zeros(0, 3):reshape(0, -1)",
    "bad argument #1 to 'reshape' (shape [0, 3] of 0 elements does not fit shape "
      .. "[0, -1])" },
  { "mt.zeros(3, 4):narrow(3, 1, 1)",
    "bad argument #1 to 'narrow' (dim 3 is out of range for shape [3, 4]: 1 .. 2 "
      .. "or -2 .. -1)" },
  { "mt.zeros(3, 4):narrow(2, 3, 3)",
    "bad argument #3 to 'narrow' (3 elements from 3 do not fit dim 2 of shape "
      .. "[3, 4])" },
  { "mt.zeros(3, 4):narrow(2, 0, 1)",
    "bad argument #2 to 'narrow' (index 0 is out of range for dim 2 of shape [3, "
      .. "4]: 1 .. 4 or -4 .. -1)" },
  { "mt.zeros(3, 4):narrow(2, 1, -1)",
    "bad argument #3 to 'narrow' (length -1 is negative)" },
  { "mt.zeros(3, 4):narrow(2, 1)",
    "bad argument #3 to 'narrow' (length: integer expected, got no value)" },
  { "mt.zeros(3, 4):select(1, 4)",
    "bad argument #2 to 'select' (index 4 is out of range for dim 1 of shape [3, "
      .. "4]: 1 .. 3 or -3 .. -1)" },
  { "mt.zeros(3, 4):transpose(1, 3)",
    "bad argument #2 to 'transpose' (dim 3 is out of range for shape [3, 4]: 1 "
      .. ".. 2 or -2 .. -1)" },
  { "mt.zeros(3, 4):permute(1, 1)",
    "bad argument #1 to 'permute' (dim 1 stands twice)" },
  { "mt.zeros(3, 4):permute(1)",
    "bad argument #1 to 'permute' (1 dims given for shape [3, 4] of 2)" },
  { "mt.zeros(3, 4):expand(3, 5)",
    "bad argument #1 to 'expand' (shape [3, 4] does not expand to [3, 5])" },
  { "mt.zeros(3, 4):expand(4)",
    "bad argument #1 to 'expand' (shape [3, 4] does not expand to [4])" },
  { "mt.zeros(3, 4):unfold(2, 5, 1)",
    "bad argument #2 to 'unfold' (windows of 5 do not fit dim 2 of shape [3, 4])" },
  { "mt.zeros(3, 4):unfold(2, 2, 0)",
    "bad argument #3 to 'unfold' (step 0: 1 or more)" },
  { "mt.zeros(3, 4):diagonal(0, 1, 1)",
    "bad argument #3 to 'diagonal' (dim 1 is given twice)" },
  { "mt.zeros(3):diagonal()",
    "calling 'diagonal' on bad self (2 dims or more expected, got shape [3])" },
  { "mt.zeros(3, 4):unsqueeze(4)",
    "bad argument #1 to 'unsqueeze' (dim 4 is out of range: 1 .. 3 or -3 .. -1)" },
  { "mt.zeros(3, 4):flatten(2, 1)",
    "bad argument #1 to 'flatten' (first dim 2 lies behind last dim 1)" },
  { "mt.zeros(2, 2, 2):t()",
    "calling 't' on bad self (at most 2 dims expected, got shape [2, 2, 2])" },
}
