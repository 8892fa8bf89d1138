-- spec/support/errors/autograd.lua: wrong calls and what they say: autograd.
return {
  { "mt.ones(1):backward()",
    "backward: output 1 does not require grad and has no history" },
  { "(mt.ones({2}, {requires_grad = true}) * 2):backward()",
    "backward: output 1 has shape [2]: only for an output of one element is "
      .. "there a gradient to start with, pass one" },
  { "(mt.ones({2}, {requires_grad = true}) * 2):backward(mt.ones(3))",
    "backward: the gradient of output 1 has shape [3], the output [2]" },
  { '(mt.ones({2}, {requires_grad = true}) * 2):backward("x")',
    "bad argument #1 to 'backward' (tensor expected, got string)" },
  { "(mt.ones({1}, {requires_grad = true}) * 2):backward(nil, {retain = true})",
    "bad argument #2 to 'backward' (unknown option 'retain'; there are retain_graph, "
      .. "create_graph)" },
  { "mt.grad(mt.ones(1), mt.ones(1), {unused = true})",
    "bad argument #3 to 'grad' (unknown option 'unused'; there are grad_outputs, "
      .. "retain_graph, create_graph, allow_unused)" },
  { "(function() local y = mt.ones({1}, {requires_grad = true}):exp(); "
      .. "y:backward(); y:backward() end)()",
    "backward: exp: the graph was released: backward a second time needs "
      .. "retain_graph" },
  { "mt.grad({mt.ones({1}, {requires_grad = true}) * 2}, {mt.ones({1}, "
      .. "{requires_grad = true})})",
    "grad: input 1 was not used for the outputs (allow_unused gives nil instead "
      .. "of this error)" },
  { "mt.grad({mt.ones({1}, {requires_grad = true}) * 2}, {mt.ones(1)})",
    "grad: input 1 does not require grad" },
  { "mt.grad({}, {})",
    "bad argument #1 to 'grad' (outputs: the list is empty)" },
  { "mt.grad({mt.ones({1}, {requires_grad = true}) * 2}, {3})",
    "bad argument #2 to 'grad' (inputs: tensor expected at [1], got number)" },
  { 'mt.ones({2}, {dtype = "int64"}):requires_grad_()',
    "requires_grad_: only floating-point tensors can require grad, not int64" },
  { "(function() local y = mt.ones({2}, {requires_grad = true}) * 2; "
      .. "y.requires_grad = false end)()",
    "requires_grad can be turned off on leaves only; detach() gives a tensor "
      .. "without history" },
  { "(function() local x = mt.ones({2}, {requires_grad = true}); x.grad = "
      .. "mt.ones(3) end)()",
    "a gradient of shape [3], float32 for a tensor of shape [2], float32" },
  { "(function() local x = mt.ones({2}, {requires_grad = true}); x.grad = 5 "
      .. "end)()",
    "grad is a tensor or nil, got number" },
  { "(function() local x = mt.ones({2}); x.requires_grad = 5 end)()",
    "requires_grad is a boolean, got number" },
  { "mt.ones(2):retain_grad()",
    "retain_grad: the tensor does not require grad" },
  { "mt.ones(2):register_hook(print)",
    "register_hook: the tensor does not require grad" },
  { "mt.ones({2}, {requires_grad = true}):register_hook(5)",
    "bad argument #1 to 'register_hook' (function expected, got number)" },
  { "mt.no_grad(5)",
    "bad argument #1 to 'no_grad' (function expected, got number)" },
  { "mt.Function(5)",
    "bad argument #1 to 'Function' (table expected, got number)" },
}
