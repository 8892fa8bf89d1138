-- spec/reference/take.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="a matrix of positions",
   check=true,
   exact=true,
   inputs={{shape={3,5},data={2.09375,.609375,-.484375,2.171875,1.546875,-2.75,-2.296875,-1.84375,1.671875,.984375,-2.375,.96875,-2.59375,-.71875,-2.015625}},
    {shape={2,3},dtype="int64",data={3,-1,7,1,15,3}}},
   outputs={{shape={2,3},data={-.484375,-2.015625,-2.296875,2.09375,-2.015625,-.484375}}},
   cotangents={{shape={2,3},data={.6875,.4375,.5625,.0625,1.0625,.5625}}},
   gradients={{shape={3,5},data={.0625,0,1.25,0,0,0,.5625,0,0,0,0,0,0,0,1.5}}}},
  {name="int64",
   exact=true,
   inputs={{shape={3,5},dtype="int64",data={36,65,66,2,20,59,48,66,69,0,13,63,38,34,77}},
    {shape={2,3},dtype="int64",data={3,-1,7,1,15,3}}},
   outputs={{shape={2,3},dtype="int64",data={66,77,48,36,77,66}}}},
}
