-- spec/ops/levels_spec.lua: products, convolutions, scans, masks, scatters and strided
-- views as processors compute them that know less than this one: each level of x86-64
-- has kernels of its own.

local shell = require "spec.support.shell"

describe("kernels", function()
  for _, level in ipairs { "v1", "v3", "v4" } do
    it("are right with the instructions of x86-64-" .. level, function()
      if shell.sanitized or os.getenv "MYTENSOR_GC_STRESS" then pending "takes long" end
      if not shell.lua:find "mtlua$" then pending "the host runs these kernels" end
      local run = "MYTENSOR_ISA=%s %s spec/run.lua ops/conv ops/half ops/matmul "
        .. "ops/reduce ops/scan ops/select ops/scatter ops/strides"
      local r = shell.run(run:format(level, shell.quote(shell.lua)))
      assert.equal(0, r.code, r.out .. r.err)
      assert.truthy(r.out:find "\n%d%d+ passed, 0 failed", r.out)
    end)
  end
end)
