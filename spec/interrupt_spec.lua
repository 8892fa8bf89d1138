-- spec/interrupt_spec.lua: Ctrl-C in a long op, in a loop, in backward, in a coroutine:
-- a Lua error within a second, which a script can catch and go on from.

local devices = require "spec.support.devices"
local shell = require "spec.support.shell"

-- What takes seconds; `ready()` tells that it begins.
local WORK = {
  product = "local a = mt.ones(6000, 6000) ready() a:matmul(a):matmul(a)",
  ["product of integers"] = [[
    local a = mt.ones(2500, 2500):long() ready() a:matmul(a)]],
  ["batch of products"] = [[
    local a = mt.ones(1, 500, 500):expand(3000, -1, -1) ready() a:matmul(a)]],
  convolution = [[
    local f, x = mt.nn.Conv2d(128, 128, 3), mt.ones(8, 128, 112, 112)
    ready()
    while true do f(x) end]],
  ["convolution of large images"] = [[
    local x, w = mt.ones(4, 3, 1000, 1000), mt.ones(64, 3, 15, 15)
    ready()
    mt.conv2d(x, w)]],
  ["gradients of a strided convolution"] = [[
    local x = mt.ones({ 1, 16, 700, 700 }, { requires_grad = true })
    local w = mt.ones({ 64, 16, 15, 15 }, { requires_grad = true })
    local y = mt.conv2d(x, w, nil, 2)
    ready()
    y:sum():backward()]],
  ["max pooling"] = [[
    local x = mt.ones(1, 1, 8000, 8000) ready() mt.max_pool2d(x, 9, 1, 0)]],
  ["average pooling"] = [[
    local x = mt.ones(1, 1, 8000, 8000) ready() mt.avg_pool2d(x, 15, 1, 0)]],
  cumsum = [[
    local a = mt.ones({ 1 }, { dtype = "float16" }):expand(100000000)
    ready()
    while true do a:cumsum(1) end]],
  sort = "local a = mt.rand(20000000) ready() while true do a:sort() end",
  scatter = [[
    local a, i = mt.zeros(30000000), mt.randperm(30000000)
    ready()
    while true do a:scatter_(1, i, a) end]],
  sum = "local a = mt.ones(1000):expand(20000000, 1000) ready() a:sum()",
  elementwise = [[
    local a = mt.ones(50000000)
    ready()
    for i = 1, 1000 do a:exp_():log_() end]],
  permutation = "ready() for i = 1, 100 do mt.randperm(20000000) end",
  ["matrix times vector"] = [[
    local a = mt.ones(3000, 1):expand(3000, 3000):contiguous()
    a = a:view(1, 3000, 3000):expand(200, 3000, 3000)
    local x = mt.ones(3000, 1)
    ready()
    while true do a:matmul(x) end]],
  ["one large matrix times a vector"] = [[
    local a = mt.ones(1):expand(200000, 100000) ready() a:matmul(mt.ones(100000))]],
  ["one large matrix, turned, times a vector"] = [[
    local a = mt.ones(1):expand(100000, 200000) ready() a:t():matmul(mt.ones(100000))]],
  totable = [[
    local a = mt.ones(30, 1000, 1000) ready() while true do a:totable() end]],
  ["totable of one large tensor"] = [[
    local a = mt.ones(20000000) ready() while true do a:totable() end]],
  ["tensor of one large table"] = [[
    local t = {}
    for i = 1, 30000000 do t[i] = i end
    ready()
    while true do mt.tensor(t) end]],
  ["format of all elements"] = [[
    local a = mt.rand(10000000)
    ready()
    while true do a:format { threshold = 1e9 } end]],
  gunzip = [[ -- the copy that Lua makes of the result cannot be ended
    local file = os.tmpname()
    os.execute("head -c 200000000 /dev/zero | gzip -1 > " .. file)
    local f = io.open(file, "rb")
    local packed = f:read "a"
    f:close()
    os.remove(file)
    ready()
    while true do mt._gunzip(packed) end]],
  ["pieces without elements"] = "ready() mt.zeros(1 << 40, 0):unbind()",
  loop = "ready() while true do end",
  ["loop of small ops"] = [[
    local a = mt.ones(3) ready() while true do a = a * 1 end]],
  ["loop in a coroutine"] = [[
    ready()
    coroutine.wrap(function() while true do local _ = mt.ones(3) + 1 end end)()]],
  ["no_grad"] = [[
    mt.no_grad(function()
      local a = mt.ones(6000, 6000)
      ready()
      a:matmul(a):matmul(a)
    end)]],
  backward = [[
    local a = mt.ones({ 3000, 3000 }, { requires_grad = true })
    local y = a:matmul(a):sum()
    ready()
    for i = 1, 100 do y:backward { retain_graph = true } end]],
  ["backward with hooks"] = [[
    local a = mt.ones({ 9 }, { requires_grad = true })
    local y = a * 2
    y:register_hook(function(g) return g * 1 end)
    y = y:sum()
    ready()
    while true do y:backward { retain_graph = true } end]],
}

-- Seconds of work for a GPU, and what waits for it.
if devices.cuda then
  for name, wait in pairs {
    ["synchronize of a busy GPU"] = "mt.cuda.synchronize()",
    ["item from a busy GPU"] = "b:sum():item()",
    ["copy from a busy GPU"] = "b:cpu()",
    ["totable from a busy GPU"] = "b[1]:totable()",
    ["synchronize of an event"] = [[
      local event = mt.cuda.Event() event:record() event:synchronize()]],
  } do
    WORK[name] = [[
      local a = mt.ones({ 8192, 8192 }, { device = "cuda" })
      local b = a:sum():item() -- a kernel's first launch waits for the GPU by itself
      for _ = 1, 300 do b = a:matmul(a) end
      ready()
    ]] .. wait
  end
end

local SCRIPT = [[
  io.stdout:setvbuf "line" -- a process may still wait for its GPU when all is said
  local mt = require "mytensor"
  mt.set_num_threads(2)
  local function ready() io.stderr:write "ready\n" end
  local ok, err = pcall(function() %s end)
  print(ok, (tostring(err):gsub("^.-(interrupted!).*$", "%%1")))
  print((mt.ones(2) + 1):sum():item(), mt.is_grad_enabled())]]

-- Run the work, interrupt it a while after it is ready, and measure what follows.
local function interrupt(work)
  local script = os.tmpname()
  shell.write(script, SCRIPT:format(work))
  local r = shell.run(([[
    %s %s >%s.out 2>%s.err &
    p=$!
    for i in $(seq 600); do
      grep -q ready %s.err && break
      sleep 0.1
    done
    sleep 0.4
    kill -INT $p
    a=$(date +%%s%%N)
    while kill -0 $p 2>/dev/null && [ $(wc -l <%s.out) -lt 2 ]; do sleep 0.02; done
    b=$(date +%%s%%N)
    kill -KILL $p 2>/dev/null
    wait $p
    echo $(( (b - a) / 1000000 ))
    cat %s.out %s.err
    rm %s.out %s.err]])
    :gsub("%%s%.", script .. "."):format(shell.lua_command(), script))
  os.remove(script)
  return r.out
end

local names = {}
for name in pairs(WORK) do names[#names + 1] = name end
table.sort(names)

describe("an interrupt", function()
  for _, name in ipairs(names) do
    it("ends within a second: " .. name, function()
      if shell.sanitized then pending "a sanitizer runs" end
      local out = interrupt(WORK[name])
      local ms = tonumber(out:match "^%d+")
      assert.truthy(out:find "ready", out)
      assert.truthy(out:find("\nfalse\tinterrupted!\n4.0\ttrue\n", 1, true), out)
      assert.is_true(ms < 1000, ms .. " ms")
    end)
  end
end)
