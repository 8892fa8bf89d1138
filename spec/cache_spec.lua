-- spec/cache_spec.lua: the folder of compiled kernels keeps within its bound. The cache
-- is compiled by itself, so that no GPU is needed.

local devices = require "spec.support.devices"
local idxfile = require "spec.support.idxfile"
local shell = require "spec.support.shell"

local program

local function build()
  if not shell.exists "kernels/cuda/jit_cache.cu" then
    pending "no sources: this is a bundle"
  elseif shell.run("command -v g++").code ~= 0 then
    pending "no g++"
  end
  program = program or os.tmpname()
  local built = shell.run("g++ -std=c++17 -O0 -Wall -Wextra -Werror -I. -o " .. program
    .. " -x c++ spec/units/jit_cache.cu kernels/cuda/jit_cache.cu")
  assert.equal(0, built.code, built.err)
end

local function run(command)
  local r = shell.run(command)
  assert.equal(0, r.code, r.out .. r.err)
  return r.out
end

-- A file of so many bytes (no disk is filled) that was used so many days ago.
local function put(folder, name, bytes, days)
  run(("truncate -s %d %s/%s && touch -d '%d days ago' %s/%s"):format(bytes, folder,
    name, days, folder, name))
end

local function code(i) return ("%032x.cubin"):format(i) end

describe("the cache of compiled code", function()
  it("removes what was not used for the longest time", function()
    build()
    local folder = idxfile.folder()
    finally(function()
      idxfile.remove(folder)
      os.remove(program)
      program = nil
    end)
    for i = 1, 8 do put(folder, code(i), 1000, i) end
    local others = { "notes.cubin", code(20):upper(), code(21) .. ".old",
      "ext-" .. code(1), code(22):sub(2), "kernel.so" }
    for _, name in ipairs(others) do put(folder, name, 5000, 100) end
    run(("mkdir %s/%s && ln -s /etc/passwd %s/%s"):format(folder, code(30), folder,
      code(31)))
    put(folder, code(40) .. ".17.0", 10, 1) -- half written, by one that ended
    run(("touch %s/%s.17.1"):format(folder, code(41))) -- by one that still may write
    run(("%s trim %s 8000"):format(program, folder))
    for i = 1, 8 do assert.is_true(shell.exists(folder .. "/" .. code(i)), i) end
    assert.is_false(shell.exists(folder .. "/" .. code(40) .. ".17.0"))
    assert.is_true(shell.exists(folder .. "/" .. code(41) .. ".17.1"))
    run(("%s trim %s 7999"):format(program, folder)) -- until 5999 are left
    for i = 1, 8 do assert.equal(i <= 5, shell.exists(folder .. "/" .. code(i)), i) end
    run(("%s trim %s 10"):format(program, folder)) -- the newest stays
    for i = 1, 8 do assert.equal(i == 1, shell.exists(folder .. "/" .. code(i)), i) end
    for _, name in ipairs(others) do
      assert.is_true(shell.exists(folder .. "/" .. name), name)
    end
    run(("test -d %s/%s && test -L %s/%s"):format(folder, code(30), folder, code(31)))
    run(program .. " trim /nowhere 10")
  end)

  it("stays within the bound while several processes write and read", function()
    build()
    local folder = idxfile.folder()
    finally(function()
      idxfile.remove(folder)
      os.remove(program)
      program = nil
    end)
    local one = ("MYTENSOR_CACHE=%s MYTENSOR_CACHE_LIMIT=160000 %s use 400 10000 & ")
      :format(folder, program)
    local waits = one:gsub("& $", "& p%%d=$!; ")
    local text, last = "", ""
    for i = 1, 4 do
      text = text .. waits:format(i)
      last = last .. ("wait $p%d && "):format(i)
    end
    assert.equal("", run(text .. last .. "true"))
    local bytes = tonumber(run("cat " .. folder .. "/* | wc -c"))
    assert.is_true(bytes > 40000 and bytes < 200000, bytes)
    assert.equal("", run("find " .. folder .. " -name '*.cubin.*'"))
  end)

  it("tells a file that is used from others, and is looked at when one is written",
    function()
      if not devices.cuda then return devices.without_cuda(pending) end
      local folder = idxfile.folder()
      finally(function() idxfile.remove(folder) end)
      local function compile(k)
        local r = shell.lua_run(([[
          local mt = require "mytensor"
          local y = mt.fuse("x", "x * %d")(mt.ones(4, { device = "cuda" }))
          print(y:sum():item())
        ]]):format(k),
          { env = "MYTENSOR_CACHE_LIMIT=100000 MYTENSOR_CACHE=" .. folder })
        assert.equal(("%.1f\n"):format(4 * k), r.out, r.err)
      end
      compile(2)
      local used = run("ls " .. folder):match "%S+"
      run(("touch -d '9 days ago' %s/%s"):format(folder, used))
      put(folder, code(1), 40000, 5)
      put(folder, code(2), 40000, 6)
      compile(2)
      compile(3)
      assert.is_true(shell.exists(folder .. "/" .. used))
      assert.is_false(shell.exists(folder .. "/" .. code(2)))
    end)
end)
