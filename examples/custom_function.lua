-- examples/custom_function.lua: an operator with a gradient of its own, in Lua.

local mt = require "mytensor"

-- log(1 + e^x), whose gradient 1 / (1 + e^-x) overflows nowhere. What forward computes
-- isn't recorded; backward says what the gradient is, in ops that are differentiable,
-- so that there are gradients of gradients, too.
local Softplus = mt.Function("Softplus", {
  forward = function(ctx, x)
    ctx:save(x)
    return x:clamp(0) + (-x:abs()):exp():log1p()
  end,
  backward = function(ctx, dy)
    local x = ctx:saved()
    return dy * x:sigmoid()
  end,
})

local x = mt.tensor({ -1000, -1, 0, 1, 1000 },
                    { dtype = "float64", requires_grad = true })
local y = Softplus(x)
y:sum():backward()
print("softplus", table.concat(y:detach():totable(), " "))
print("gradient", table.concat(x.grad:totable(), " "))

local small = mt.tensor({ -2, 0.5, 3 }, { dtype = "float64", requires_grad = true })
print("checked", mt.gradcheck(Softplus, { small }),
      mt.gradgradcheck(Softplus, { small }))
