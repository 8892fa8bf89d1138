-- spec/reference/nextafter.lua: written by generate.py.
local inf, nan = math.huge, 0/0
return {inf = inf, nan = nan,
  {name="nothing between",
   inputs={{shape={7},data={.5,-3,0,inf,nan,1,-inf}},
    {shape={7},data={.5,-3,-0.0,inf,1,nan,-inf}}},
   outputs={{shape={7},data={.5,-3,-0.0,inf,nan,nan,-inf}}}},
  {name="0-dim",
   inputs={{shape={},data={2}},
    {shape={},data={2}}},
   outputs={{shape={},data={2}}}},
}
