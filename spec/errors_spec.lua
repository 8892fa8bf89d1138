-- spec/errors_spec.lua: every error by its text: which function, which argument, what
-- was given, what is possible. The calls and their messages are in
-- spec/support/errors/.

local mt = require "mytensor"

local function groups()
  local names = {}
  for name in require "lfs".dir "spec/support/errors" do
    names[#names + 1] = name:match "^(.*)%.lua$"
  end
  table.sort(names)
  return names
end

-- Run a piece of code: an expression, or a function that is called.
local function message_of(code)
  local head = code:find "^%(function" and "local mt = ... return "
    or "local mt = ... local _ = "
  local ok, err = pcall(assert(load(head .. code, "=code")), mt)
  if ok then return nil end
  return (tostring(err):gsub("^code:%d+: ", ""))
end

for _, group in ipairs(groups()) do
  describe("errors: " .. group:gsub("_", " "), function()
    for _, case in ipairs(dofile("spec/support/errors/" .. group .. ".lua")) do
      local code, text = case[1], case[2]
      it(code, function() assert.equal(text, message_of(code)) end)
    end
  end)
end

describe("an error", function()
  it("names the line of the caller", function()
    local ok, err = pcall(load(
      "local mt = ...\nlocal x = mt.zeros(2)\nreturn x:view(3)",
      "=script"), mt)
    assert.is_false(ok)
    assert.truthy(err:find "^script:3: ", err)
  end)

  it("counts arguments as the caller wrote them", function()
    local x = mt.zeros(2, 3)
    local _, by_method = pcall(function() x:matmul(mt.zeros(4, 5)) end)
    local _, by_function = pcall(function() mt.matmul(x, mt.zeros(4, 5)) end)
    assert.truthy(by_method:find("#1 to 'matmul'", 1, true), by_method)
    assert.truthy(by_function:find("#2 to 'matmul'", 1, true), by_function)
  end)

  it("leaves the arguments as they were", function()
    local x = mt.ones(2, 3)
    for _, f in ipairs {
      function() x:add_(mt.ones(5)) end, function() x:copy_(mt.ones(5)) end,
      function() x[1] = mt.ones(5) end, function() x:clamp_("a") end,
    } do
      assert.is_false((pcall(f)))
      assert.equal(6, x:sum():item())
      assert.same({ 2, 3 }, x:shape())
    end
  end)

  it("leaks nothing", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    for _ = 1, 100 do
      pcall(function() return mt.zeros(2, 3):matmul(mt.zeros(4, 5)) end)
      pcall(function() return mt.tensor { { 1, 2 }, { 3 } } end)
      pcall(function() return mt.cat { mt.zeros(2), "x" } end)
      pcall(function() return mt.zeros(2):masked_fill(mt.zeros(3), 5) end)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)
end)
