-- spec/support/errors/system.lua: wrong calls and what they say: settings.
return {
  { 'mt.manual_seed("x")',
    "bad argument #1 to 'manual_seed' (integer expected, got string)" },
  { 'mt.set_rng_state("x")',
    "bad argument #1 to 'set_rng_state' (table expected, got string)" },
  { "mt.set_num_threads(0)",
    "bad argument #1 to 'set_num_threads' (0 threads: 1 .. 1024 are possible)" },
  { "mt.set_printoptions{precison = 2}",
    "bad argument #1 to 'set_printoptions' (unknown option 'precison'; there are "
      .. "precision, threshold, edgeitems, linewidth, sci_mode)" },
  { "mt.set_printoptions{precision = -1}",
    "bad argument #1 to 'set_printoptions' (option 'precision': a number not "
      .. "below 0 expected)" },
}
