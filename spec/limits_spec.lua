-- spec/limits_spec.lua: how much memory and how many processors a process takes by
-- default, and on which cores its threads run.

local lfs = require "lfs"
local mt = require "mytensor"
local shell = require "spec.support.shell"

-- Write files under a fresh folder, which stands for the root of the file system, and
-- give fn's results.
local function with_root(files, fn)
  local root = os.tmpname()
  os.remove(root)
  for path, text in pairs(files) do
    local folder = root .. path:match "^(.*)/"
    assert.equal(0, shell.run("mkdir -p " .. shell.quote(folder)).code)
    shell.write(root .. path, text .. "\n")
  end
  local results = table.pack(pcall(fn, root))
  shell.run("rm -r " .. shell.quote(root))
  assert(results[1], results[2])
  return table.unpack(results, 2, results.n)
end

local GIB <const> = 1 << 30
local MEMINFO <const> = ("MemFree: 5 kB\nMemTotal: %d kB"):format(8 * GIB // 1024)

local function limits(files)
  files["/proc/meminfo"] = files["/proc/meminfo"] or MEMINFO
  return with_root(files, mt._default_limits)
end

describe("the default memory limit", function()
  it("is 90% of the machine's", function()
    assert.equal(8 * GIB // 10 * 9, (limits {}))
    assert.equal(8 * GIB // 10 * 9, (limits { ["/proc/self/cgroup"] = "0::/" }))
  end)

  it("is 90% of what the control group allows, if that is less", function()
    assert.equal(GIB // 10 * 9, (limits { ["/proc/self/cgroup"] = "0::/job",
      ["/sys/fs/cgroup/job/memory.max"] = tostring(GIB) }))
    assert.equal(8 * GIB // 10 * 9, (limits { ["/proc/self/cgroup"] = "0::/job",
      ["/sys/fs/cgroup/job/memory.max"] = "max" }))
    assert.equal(8 * GIB // 10 * 9, (limits { ["/proc/self/cgroup"] = "0::/job",
      ["/sys/fs/cgroup/job/memory.max"] = tostring(100 * GIB) }))
  end)

  it("is the least of nested groups", function()
    local function nested(outer, inner)
      return (limits { ["/proc/self/cgroup"] = "0::/a.slice/b/c",
        ["/sys/fs/cgroup/a.slice/memory.max"] = outer,
        ["/sys/fs/cgroup/a.slice/b/c/memory.max"] = inner })
    end
    assert.equal(GIB // 10 * 9, nested(tostring(2 * GIB), tostring(GIB)))
    assert.equal(GIB // 10 * 9, nested(tostring(GIB), tostring(2 * GIB)))
    assert.equal(GIB // 10 * 9, nested(tostring(GIB), "max"))
  end)

  it("counts the container's own group where the path is the host's", function()
    assert.equal(GIB // 10 * 9, (limits {
      ["/proc/self/cgroup"] = "0::/system.slice/docker-1f.scope",
      ["/sys/fs/cgroup/memory.max"] = tostring(GIB) }))
  end)

  it("knows the first version of control groups, too", function()
    local files = {
      ["/proc/self/cgroup"] = "5:cpu,cpuacct:/x\n4:memory:/api/1f\n0::/",
      ["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712",
      ["/sys/fs/cgroup/memory/api/1f/memory.limit_in_bytes"] = tostring(3 * GIB),
    }
    assert.equal(3 * GIB // 10 * 9, (limits(files)))
    files["/sys/fs/cgroup/memory/api/memory.limit_in_bytes"] = tostring(GIB)
    assert.equal(GIB // 10 * 9, (limits(files)))
  end)

  it("is what mt.memory_stats tells", function()
    mt.set_memory_limit(nil)
    assert.equal(mt._default_limits "", mt.memory_stats().limit_bytes)
  end)

  it("takes damaged files for none", function()
    for _, text in ipairs { "", "x", "1:2", "0::", ":::", ("a"):rep(5000) } do
      assert.equal(8 * GIB // 10 * 9, (limits { ["/proc/self/cgroup"] = text,
        ["/sys/fs/cgroup/memory.max"] = "lots" }))
    end
  end)
end)

describe("the default number of threads", function()
  local function processors(files) return (select(2, limits(files))) end

  it("is limited by the time that control groups give", function()
    local function quota(text)
      return processors { ["/proc/self/cgroup"] = "0::/job",
        ["/sys/fs/cgroup/job/cpu.max"] = text }
    end
    assert.is_nil(quota "max 100000")
    assert.equal(2, quota "200000 100000")
    assert.equal(2, quota "150000 100000")
    assert.equal(1, quota "1000 100000")
    assert.is_nil(processors {})
  end)

  it("in either version, and the least of nested ones", function()
    assert.equal(3, processors {
      ["/proc/self/cgroup"] = "3:cpu,cpuacct:/a/b",
      ["/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"] = "300000",
      ["/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us"] = "100000",
      ["/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us"] = "-1",
      ["/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us"] = "100000" })
  end)
end)

-- A program's threads and the cores that each may use, after an op on all threads.
local TASKS <const> = [[
  local lfs, mt = require "lfs", require "mytensor"
  local function tasks()
    local list = {}
    for id in lfs.dir "/proc/self/task" do
      if id:find "%d" then
        local f = io.open("/proc/self/task/" .. id .. "/status")
        list[#list + 1] = f:read("a"):match "Cpus_allowed_list:%s*(%S+)"
        f:close()
      end
    end
    return list
  end
  local function work() mt.rand(1 << 21):exp() end
]]

local function run(code, env)
  local r = shell.lua_run(TASKS .. code, { env = env })
  assert.equal(0, r.code, r.err)
  return r.out
end

describe("threads", function()
  local cores = tonumber(shell.run("nproc").out)
  if cores ~= 2 or shell.sanitized or not lfs.attributes "/proc/self/task" then
    pending "needs two cores, and no sanitizer"
    return
  end
  local all = shell.run("grep Cpus_allowed_list /proc/self/status").out:match "%s(%S+)"
  local first = all:match "^%d+"

  it("lie on cores of their own, and the first one is free to move", function()
    local out = run "work() local t = tasks() print(#t, t[1], t[2])"
    local main, worker = out:match "2\t(%S+)\t(%S+)"
    assert.equal(all, main, out)
    assert.truthy(worker:find "^%d+$", out)
  end)

  it("leave the cores of other programs as they are", function()
    assert.equal("2\n", run "work() io.write(io.popen('nproc'):read 'a')")
  end)

  it("are not bound where OpenMP was told how", function()
    assert.equal(all .. "\n", run("work() print(tasks()[2])", "OMP_PROC_BIND=false"))
  end)

  it("are not bound where there are fewer or more of them than cores", function()
    assert.equal("1\t" .. first .. "\n", run("work() local t = tasks() "
      .. "print(#t, t[1])", "taskset -c " .. first .. " env"))
    assert.equal("3\t" .. all .. "\n", run("mt.set_num_threads(3) work() "
      .. "local t = tasks() print(#t, t[3])"))
  end)

  it("follow when the process is given other cores", function()
    local code = [[
      work()
      local self = io.open("/proc/self/stat"):read "n"
      os.execute("taskset -acp FIRST " .. self .. " >/dev/null")
      for _ = 1, 20 do work() end
      local t = tasks()
      print(#t, t[1], t[2])]]
    assert.equal(("2\t%s\t%s\n"):format(first, first),
      run((code:gsub("FIRST", first))))
  end)
end)
