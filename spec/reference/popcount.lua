-- spec/reference/popcount.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="int64",
   inputs={{shape={3,5},dtype="int64",data={-97,-17,25,29,-67,-95,-37,-13,-57,88,71,-4,39,-3,-7}}},
   outputs={{shape={3,5},dtype="int64",data={62,63,3,4,62,59,62,62,61,3,4,62,4,63,62}}}},
  {name="int32",
   inputs={{shape={3,5},dtype="int32",data={67,-20,41,-73,73,-48,-5,7,-72,64,-97,-89,99,84,16}}},
   outputs={{shape={3,5},dtype="int32",data={3,29,3,30,3,27,31,3,28,1,30,29,4,3,1}}}},
  {name="int16",
   inputs={{shape={3,5},dtype="int16",data={-86,-52,17,22,10,-32,-79,5,93,-93,-83,-9,-92,8,83}}},
   outputs={{shape={3,5},dtype="int16",data={12,12,2,3,2,11,12,2,5,12,13,15,11,1,4}}}},
  {name="int8",
   inputs={{shape={3,5},dtype="int8",data={55,45,50,96,80,-59,-32,-6,97,-68,5,-99,65,-78,7}}},
   outputs={{shape={3,5},dtype="int8",data={5,4,3,2,2,4,3,6,3,5,2,5,2,4,3}}}},
  {name="uint8",
   inputs={{shape={3,5},dtype="uint8",data={75,90,59,31,11,7,23,39,28,74,98,4,98,61,8}}},
   outputs={{shape={3,5},dtype="uint8",data={4,4,5,5,3,3,4,4,3,3,3,1,3,5,1}}}},
}
