-- spec/reference/argsort.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="ties",
   inputs={{shape={3,7},data={1,0,5,5,0,4,3,1,3,3,5,2,5,5,0,4,1,2,1,2,3}}},
   outputs={{shape={3,7},dtype="int64",data={2,5,1,7,6,3,4,1,5,2,3,4,6,7,1,3,5,4,6,7,2}}}},
  {name="falling, dim 1",
   attrs={dim=1,descending=true},
   inputs={{shape={5,3},data={-.484375,.015625,-.734375,.390625,.140625,.515625,-.359375,-.859375,-.109375,-.609375,-.234375,.265625,.640625,.765625,.890625}}},
   outputs={{shape={5,3},dtype="int64",data={5,5,5,2,2,2,3,1,4,1,4,3,4,3,1}}}},
  {name="int32",
   inputs={{shape={2,9},dtype="int32",data={-7,-3,3,8,-3,3,5,0,2,2,-2,2,-1,9,-3,1,4,2}}},
   outputs={{shape={2,9},dtype="int64",data={1,2,5,8,9,3,6,7,4,6,2,4,7,1,3,9,8,5}}}},
}
