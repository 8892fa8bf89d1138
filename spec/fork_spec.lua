-- spec/fork_spec.lua: a process that has used threads forks, and the child goes on.

local mt = require "mytensor"
local shell = require "spec.support.shell"

local function build()
  if shell.build:find "tsan" then pending "ThreadSanitizer does not follow forks" end
  if shell.run("command -v gcc").code ~= 0 then pending "no gcc" end
  if not shell.lua_headers() then pending "no Lua headers" end
  local file = os.tmpname()
  local r = shell.run("gcc -Wall -Wextra -Werror -shared -fPIC "
    .. shell.lua_includes .. " spec/support/forked.c -o " .. file)
  assert.equal(0, r.code, r.err)
  local run = assert(package.loadlib(file, "luaopen_forked"))()
  os.remove(file)
  return run
end

local function work()
  mt.manual_seed(5)
  local w = mt.randn({ 300, 300 }, { requires_grad = true })
  local y = mt.randn(300, 300):matmul(w):exp():sum(1)
  local z = mt.randn(1 << 20):tanh():sum()
  y:sum():backward()
  return ("%.17g %.17g"):format(w.grad:sum():item(), z:item())
end

describe("after fork()", function()
  it("the child works on one thread, with the same results", function()
    local run = build()
    local threads = mt.get_num_threads()
    mt.set_num_threads(4)
    local expected = work() -- OpenMP's threads are there now
    local got, ended = run(function()
      assert(mt.get_num_threads() == 1, "more than one thread")
      return work()
    end)
    assert.equal("done", ended, got)
    assert.equal(expected, got)
    assert.equal(4, mt.get_num_threads())
    assert.equal(expected, work()) -- the parent goes on as before
    mt.set_num_threads(threads)
  end)

  it("the child says why it takes no more threads", function()
    local got, ended = build()(function() mt.set_num_threads(2) end)
    assert.equal("failed", ended)
    assert.truthy(got:find("a child of fork() works on one thread", 1, true), got)
  end)

  it("the child's memory is its own: limits, caches, collection", function()
    local before = mt.memory_stats().live_tensors
    local got, ended = build()(function()
      local list = {}
      for i = 1, 100 do list[i] = mt.ones(i * 100) end
      assert(mt.memory_stats().live_tensors >= 100)
      mt.set_memory_limit(1 << 20)
      assert(not pcall(mt.zeros, 1 << 20))
      collectgarbage()
      mt.empty_cache()
      return #list == 100 and "fine" or "lost"
    end)
    assert.equal("done", ended, got)
    assert.equal("fine", got)
    assert.equal(before, mt.memory_stats().live_tensors)
  end)
end)
