-- spec/reference/take.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="a matrix of positions",
   check=true,
   exact=true,
   inputs={{shape={3,5},data={.46875,1.25,-.125,-2.4375,.015625,-1.96875,-1.21875,-.96875,-.078125,-2.25,.03125,.078125,3,2.671875,-.796875}},
    {shape={2,3},dtype="int64",data={3,-1,7,1,15,3}}},
   outputs={{shape={2,3},data={-.125,-.796875,-1.21875,.46875,-.796875,-.125}}},
   cotangents={{shape={2,3},data={-.1875,-.6875,.6875,-.0625,.8125,-.5625}}},
   gradients={{shape={3,5},data={-.0625,0,-.75,0,0,0,.6875,0,0,0,0,0,0,0,.125}}}},
  {name="int64",
   exact=true,
   inputs={{shape={3,5},dtype="int64",data={85,76,10,79,3,21,37,80,38,53,41,53,21,29,3}},
    {shape={2,3},dtype="int64",data={3,-1,7,1,15,3}}},
   outputs={{shape={2,3},dtype="int64",data={10,3,37,85,3,10}}}},
}
