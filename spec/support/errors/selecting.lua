-- spec/support/errors/selecting.lua: wrong calls and what they say: selecting by index
-- tensors and masks.
return {
  { "mt.zeros(2, 3):gather(1, mt.tensor{1})",
    "bad argument #2 to 'gather' (index has shape [1], x [2, 3]: 1 dims ~= 2)" },
  { "mt.zeros(2, 3):gather(1, mt.ones(1, 4))",
    "bad argument #2 to 'gather' (index [1, 4] does not fit x [2, 3]: 4 > 3 in "
      .. "dim 2)" },
  { "mt.zeros(2, 3):gather(1, mt.full({1, 2}, 3))",
    "bad argument #2 to 'gather' (value 3 at element 1 is out of range 1 .. 2)" },
  { "mt.zeros(2, 3):scatter_add(1, mt.ones(1, 2), mt.ones(1, 1))",
    "bad argument #3 to 'scatter_add' (index [1, 2] does not fit src [1, 1]: 2 > "
      .. "1 in dim 2)" },
  { "mt.zeros(2, 3):index_select(1, mt.tensor{3})",
    "bad argument #2 to 'index_select' (value 3 at element 1 is out of range 1 "
      .. ".. 2)" },
  { "mt.zeros(2, 3):index_select(1, mt.ones(1, 1))",
    "bad argument #2 to 'index_select' (index has shape [1, 1], want a vector)" },
  { "mt.zeros(2, 3):index_select(1, mt.tensor{true})",
    "bad argument #2 to 'index_select' (index is bool, want whole numbers)" },
  { "mt.zeros(2, 3):index_add(1, mt.tensor{1}, mt.zeros(1, 2))",
    "bad argument #3 to 'index_add' (src has shape [1, 2], x [2, 3] with index "
      .. "[1] wants [1, 3])" },
  { "mt.zeros(2, 3):index_copy(1, mt.tensor{1}, mt.zeros(2, 3))",
    "bad argument #3 to 'index_copy' (src has shape [2, 3], x [2, 3] with index "
      .. "[1] wants [1, 3])" },
  { "mt.zeros(2):masked_select(mt.zeros(2))",
    "bad argument #1 to 'masked_select' (mask is float32, want bool)" },
  { "mt.zeros(2):masked_select(mt.tensor{true, false, true})",
    "masked_select: shapes [2] and [3] do not broadcast: 2 and 3" },
  { 'mt.arange(3, {dtype = "uint8"}):masked_fill(mt.ones(3):bool(), 256)',
    "bad argument #2 to 'masked_fill' (value is 256: uint8 holds 0 .. 255)" },
  { 'mt.arange(3, {dtype = "uint8"}):index_fill(1, mt.tensor{1}, -1)',
    "bad argument #3 to 'index_fill' (value is -1: uint8 holds 0 .. 255)" },
  { 'mt.arange(3, {dtype = "int16"}):scatter(1, mt.tensor{1}, 1e5)',
    "bad argument #3 to 'scatter' (value is 100000: int16 holds -32768 .. 32767)" },
  { 'mt.arange(3, {dtype = "int16"}):put(mt.tensor{1}, 32768)',
    "bad argument #2 to 'put' (value is 32768: int16 holds -32768 .. 32767)" },
  { 'mt.arange(3):index_select(1, mt.tensor({math.mininteger}, {dtype = "int64"}))',
    "bad argument #2 to 'index_select' (value -9223372036854775808 at element 1 is out "
      .. "of range 1 .. 3)" },
  { "mt.arange(3):index_select(1, mt.tensor{1, 2.5})",
    "bad argument #2 to 'index_select' (no whole number at element 2: 2.5)" },
}
