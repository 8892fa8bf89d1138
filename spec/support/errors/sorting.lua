-- spec/support/errors/sorting.lua: wrong calls and what they say: sorting, statistics,
-- and reading and writing at positions.
return {
  { "mt.zeros(2, 3):sort(3)",
    "bad argument #1 to 'sort' (dim 3 is out of range for shape [2, 3]: 1 .. "
      .. "2 or -2 .. -1)" },
  { "mt.zeros(2, 3):topk(4)",
    "bad argument #1 to 'topk' (k is 4, shape [2, 3] has 0 .. 3 elements "
      .. "along dim 2)" },
  { "mt.zeros(2, 3):topk(-1)",
    "bad argument #1 to 'topk' (k is -1, shape [2, 3] has 0 .. 3 elements "
      .. "along dim 2)" },
  { "mt.zeros(2, 3):kthvalue(0)",
    "bad argument #1 to 'kthvalue' (k is 0, shape [2, 3] has 1 .. 3 elements "
      .. "along dim 2)" },
  { "mt.zeros(2, 0):kthvalue(1)",
    "bad argument #1 to 'kthvalue' (k is 1, shape [2, 0] has 1 .. 0 elements "
      .. "along dim 2)" },
  { 'mt.zeros({0}, {dtype = "int64"}):median()',
    "calling 'median' on bad self (dim 1 of shape [0] has no elements to "
      .. "choose from)" },
  { "mt.zeros(2, 0):median(2)",
    "calling 'median' on bad self (dim 2 of shape [2, 0] has no elements to "
      .. "choose from)" },
  { "mt.zeros(2, 0):mode()",
    "calling 'mode' on bad self (dim 2 of shape [2, 0] has no elements to "
      .. "choose from)" },
  { "mt.zeros(3):quantile(1.5)",
    "bad argument #1 to 'quantile' (q is 1.5, want 0 .. 1)" },
  { "mt.zeros(3):quantile(mt.tensor{0.5, -1})",
    "bad argument #1 to 'quantile' (q is -1, want 0 .. 1)" },
  { "mt.zeros(3):quantile(mt.zeros(2, 2))",
    "bad argument #1 to 'quantile' (q has shape [2, 2], want a number or a "
      .. "vector)" },
  { "mt.zeros(0):quantile(0.5)",
    "calling 'quantile' on bad self (dim 1 of shape [0] has no elements to "
      .. "choose from)" },
  { 'mt.zeros(3):quantile(0.5, {interpolation = "cubic"})',
    "bad argument #2 to 'quantile' (option 'interpolation': 'cubic' is none "
      .. "of linear|lower|higher|midpoint|nearest)" },
  { "mt.zeros(2, 3):unique({dim = 3})",
    "bad argument #1 to 'unique' (option 'dim': dim 3 is out of range for "
      .. "shape [2, 3]: 1 .. 2 or -2 .. -1)" },
  { "mt.searchsorted(mt.zeros(2, 3), mt.zeros(3, 3))",
    "bad argument #1 to 'searchsorted' (sorted has shape [2, 3], want a "
      .. "vector, or all but the last size of x [3, 3])" },
  { "mt.zeros(3):bucketize(mt.zeros(2, 2))",
    "bad argument #1 to 'bucketize' (boundaries has shape [2, 2], want a "
      .. "vector)" },
  { "mt.tensor({0, 1}, {dtype = 'int64'}):bincount()",
    "calling 'bincount' on bad self (x has the element 0, want 1 and above)" },
  { "mt.zeros(2):bincount()",
    "calling 'bincount' on bad self (x has the element 0, want 1 and above)" },
  { "mt.tensor{1, 1.5}:bincount()",
    "calling 'bincount' on bad self (x has elements that are no whole numbers)" },
  { "mt.tensor{1, 0 / 0}:bincount()",
    "calling 'bincount' on bad self (x has elements that are no whole numbers)" },
  { "mt.zeros(2, 2):bincount()",
    "calling 'bincount' on bad self (x is float32 of shape [2, 2], want a "
      .. "vector of integers)" },
  { "mt.tensor({1, 1}, {dtype = 'int64'}):bincount(mt.zeros(3))",
    "bad argument #1 to 'bincount' (weights has shape [3], x [2])" },
  { "mt.zeros(2):histc(0)",
    "bad argument #1 to 'histc' (0 bins, want 1 or more)" },
  { "mt.zeros(2):histc(3, 2, 1)",
    "bad argument #2 to 'histc' (the range 2 .. 1 is empty or not finite)" },
  { "mt.zeros(2, 3):cumprod(3)",
    "bad argument #1 to 'cumprod' (dim 3 is out of range for shape [2, 3]: 1 "
      .. ".. 2 or -2 .. -1)" },
  { "mt.zeros(2, 3):cummax()",
    "bad argument #1 to 'cummax' (dim: integer expected, got no value)" },
  { "mt.zeros(2, 3):scatter(1, mt.ones(1, 4), 1)",
    "bad argument #2 to 'scatter' (index [1, 4] does not fit x [2, 3]: 4 > 3 "
      .. "in dim 2)" },
  { "mt.zeros(2, 3):scatter(1, mt.full({1, 2}, 3), 1)",
    "bad argument #2 to 'scatter' (value 3 at element 1 is out of range 1 .. "
      .. "2)" },
  { "mt.zeros(2, 3):scatter(1, mt.ones(2, 3), mt.ones(1, 3))",
    "bad argument #3 to 'scatter' (index [2, 3] does not fit src [1, 3]: 2 > "
      .. "1 in dim 1)" },
  { "mt.zeros(2, 3):scatter_reduce(1, mt.ones(1, 3), mt.ones(1, 3), 'max')",
    "bad argument #4 to 'scatter_reduce' (reduce: 'max' is none of "
      .. "sum|prod|mean|amax|amin)" },
  { "mt.zeros(2, 3):scatter_reduce(1, mt.full({1, 3}, 9), mt.ones(1, 3), "
      .. "'amax')",
    "bad argument #2 to 'scatter_reduce' (value 9 at element 1 is out of "
      .. "range 1 .. 2)" },
  { "mt.zeros(2, 3):take(mt.tensor{7})",
    "bad argument #1 to 'take' (value 7 at element 1 is out of range 1 .. 6)" },
  { "mt.take(mt.zeros(2, 3), mt.tensor{1.5})",
    "bad argument #2 to 'take' (no whole number at element 1: 1.5)" },
  { "mt.zeros(2, 3):take_along_dim(mt.tensor{7})",
    "bad argument #1 to 'take_along_dim' (value 7 at element 1 is out of range 1 .. "
      .. "6)" },
  { "mt.take_along_dim(mt.zeros(2, 3), mt.ones(2, 1) * 4, 2)",
    "bad argument #2 to 'take_along_dim' (value 4 at element 1 is out of range 1 .. "
      .. "3)" },
  { "(function() mt.zeros(2, 3):put_(mt.tensor{1, 7}, 0) end)()",
    "bad argument #1 to 'put_' (value 7 at element 2 is out of range 1 .. 6)" },
  { "mt.put(mt.zeros(2, 3), mt.tensor{0}, mt.zeros(1), true)",
    "bad argument #2 to 'put' (value 0 at element 1 is out of range 1 .. 6)" },
  { "mt.zeros(2, 3):take_along_dim(mt.ones(2), 2)",
    "bad argument #1 to 'take_along_dim' (index has shape [2], x [2, 3]: 1 "
      .. "dims ~= 2)" },
  { "mt.zeros(2, 3):take_along_dim(mt.ones(3, 3), 2)",
    "bad argument #1 to 'take_along_dim' (index has shape [3, 3], x [2, 3]: "
      .. "they do not broadcast in dim 1)" },
  { "mt.zeros(2, 3):put(mt.tensor{1, 2}, mt.zeros(3))",
    "bad argument #2 to 'put' (src has shape [3], index [2])" },
  { "mt.zeros(2, 3):index_fill(1, mt.tensor{3}, 0)",
    "bad argument #2 to 'index_fill' (value 3 at element 1 is out of range 1 "
      .. ".. 2)" },
  { "mt.zeros(2, 3):index_fill(1, mt.tensor{1}, mt.zeros(2))",
    "bad argument #3 to 'index_fill' (value has shape [2], want a number or "
      .. "a 0-dim tensor)" },
  { "mt.zeros(3):masked_scatter(mt.tensor{true, true, false}, mt.zeros(1))",
    "bad argument #2 to 'masked_scatter' (src has 1 elements, mask is true 2 "
      .. "times)" },
  { "mt.zeros(3):masked_scatter(mt.zeros(3), mt.zeros(3))",
    "bad argument #1 to 'masked_scatter' (mask is float32, want bool)" },
  { "mt.zeros(3):masked_scatter(mt.tensor{true, true}, mt.zeros(3))",
    "masked_scatter: shapes [3] and [2] do not broadcast: 3 and 2" },
  { "mt.tensor(1):diff()",
    "calling 'diff' on bad self (x is 0-dim: it has no neighbours)" },
  { "mt.zeros(3):diff(-1)",
    "bad argument #1 to 'diff' (n is -1, want 0 or more)" },
  { "mt.tensor(1):trapezoid()",
    "calling 'trapezoid' on bad self (y is 0-dim: it has no neighbours)" },
  { "mt.zeros(2, 3):trapezoid(mt.zeros(3, 3))",
    "bad argument #1 to 'trapezoid' (x has shape [3, 3], y [2, 3])" },
  { "mt.zeros(3):trapezoid(mt.zeros(2))",
    "bad argument #1 to 'trapezoid' (x has shape [2], y [3])" },
  { "mt.zeros(2, 2, 2):cov()",
    "calling 'cov' on bad self (x has shape [2, 2, 2], want (variables, "
      .. "observations))" },
  { "mt.zeros(2, 3):cov({fweights = mt.ones(3)})",
    "bad argument #1 to 'cov' (option 'fweights': fweights is float32, want "
      .. "integers)" },
  { "mt.zeros(2, 3):cov({aweights = mt.ones(2)})",
    "bad argument #1 to 'cov' (option 'aweights': aweights has shape [2], "
      .. "want [3])" },
  { "mt.zeros(2, 3):aminmax(3)",
    "bad argument #1 to 'aminmax' (dim 3 is out of range for shape [2, 3]: 1 "
      .. ".. 2 or -2 .. -1)" },
  { "mt.zeros(0):aminmax()",
    "calling 'aminmax' on bad self (dim 1 of shape [0] has no elements to "
      .. "choose from)" },
}
