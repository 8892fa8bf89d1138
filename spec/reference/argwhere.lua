-- spec/reference/argwhere.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="matrix",
   inputs={{shape={3,5},data={0,0,0,0,0,0,1,1,0,1,0,0,1,1,1}}},
   outputs={{shape={6,2},dtype="int64",data={2,2,2,3,2,5,3,3,3,4,3,5}}}},
  {name="int64",
   inputs={{shape={2,3,2},dtype="int64",data={1,0,0,1,1,1,1,1,1,1,1,1}}},
   outputs={{shape={10,3},dtype="int64",data={1,1,1,1,2,2,1,3,1,1,3,2,2,1,1,2,1,2,2,2,1,2,2,2,2,3,1,2,3,2}}}},
}
