-- spec/reference/nonzero.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="matrix",
   inputs={{shape={3,5},dtype="int64",data={0,0,0,0,1,0,1,0,0,1,1,0,0,0,1}}},
   outputs={{shape={5,2},dtype="int64",data={1,5,2,2,2,5,3,1,3,5}}}},
  {name="vector",
   inputs={{shape={9},data={1.5,-1.5,-3,0,-3,1.5,0,-3,-3}}},
   outputs={{shape={7,1},dtype="int64",data={1,2,3,5,6,8,9}}}},
  {name="bools",
   inputs={{shape={2,3,4},dtype="bool",data={0,1,0,1,1,0,1,1,1,1,1,0,1,0,0,1,0,0,1,0,1,0,1,1}}},
   outputs={{shape={14,3},dtype="int64",data={1,1,2,1,1,4,1,2,1,1,2,3,1,2,4,1,3,1,1,3,2,1,3,3,2,1,1,2,1,4,2,2,3,2,3,1,2,3,3,2,3,4}}}},
  {name="none",
   inputs={{shape={3},data={0,0,0}}},
   outputs={{shape={0,1},dtype="int64",data={}}}},
  {name="special",
   inputs={{shape={4},data={nan,0,-0.0,inf}}},
   outputs={{shape={2,1},dtype="int64",data={1,4}}}},
}
