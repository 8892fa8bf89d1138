-- lua/mytensor/nn/module_list.lua: a list of modules whose parameters are registered.

local class = require "mytensor.class"
local Sequential = require "mytensor.nn.sequential"
local Module = require "mytensor.nn.module"

--- Modules by number, without a `forward` of its own: `for i, m in
--- ipairs(self.layers)`. (A plain table of modules in a field isn't searched for
--- parameters.)
--- @class mytensor.nn.ModuleList: mytensor.nn.Sequential
local ModuleList = class("ModuleList", Sequential)

ModuleList.forward = Module.forward

return ModuleList
