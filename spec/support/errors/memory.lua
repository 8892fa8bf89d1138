-- spec/support/errors/memory.lua: wrong calls and what they say: freed tensors and
-- memory.
return {
  { "(function() local x = mt.zeros(2); x:free(); return x + 1 end)()",
    "'+' does not take a freed tensor and a number" },
  { "(function() local x = mt.zeros(2); x:free(); return x:shape() end)()",
    "calling 'shape' on bad self (the tensor was freed)" },
  { "(function() local x = mt.zeros(2); x:free(); return x[1] end)()",
    "attempt to index a freed tensor" },
  { "(function() local x = mt.zeros(2); x:free(); return mt.ones(2):add(x) end)()",
    "bad argument #1 to 'add' (the tensor was freed)" },
  { "(function() local x = mt.zeros(2); x:free(); return mt.cat{x} end)()",
    "bad argument #1 to 'cat' (tensor expected at [1] of the list, got freed "
      .. "tensor)" },
  { "mt.set_memory_limit(-1)",
    "bad argument #1 to 'set_memory_limit' (a number of bytes above 0 expected)" },
  { 'mt.memory_stats("tpu")',
    "bad argument #1 to 'memory_stats' (unknown device 'tpu': want cpu, cuda or "
      .. "cuda:N)" },
  { "mt.scope(5)",
    "bad argument #1 to 'scope' (function expected, got number)" },
}
