-- spec/support/random_ops.lua: the ops that draw; spec/ops/random_spec.lua has a
-- property test for each of them.
return {
  uniform = true, normal = true, random = true, bernoulli = true, dropout = true,
}
