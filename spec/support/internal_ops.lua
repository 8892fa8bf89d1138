-- spec/support/internal_ops.lua: rows whose name begins with _ are reached through
-- other functions; the spec file that tests each.
return {
  _cast = "spec/convert_spec.lua",
  _copy = "spec/inplace_spec.lua",
  _arange = "spec/construct_spec.lua",
  _linspace = "spec/construct_spec.lua",
  _max_dim = "spec/ops/matrix_spec.lua (max)",
  _min_dim = "spec/ops/matrix_spec.lua (min)",
  _nonzero = "spec/ops/matrix_spec.lua (nonzero)",
  _recurrence = "spec/ops/sort_spec.lua",
  _scatter = "spec/ops/matrix_spec.lua (scatter)",
  _scatter_fold = "spec/ops/matrix_spec.lua (scatter_reduce)",
  _masked_select = "spec/ops/matrix_spec.lua (masked_select)",
  _permutation = "spec/ops/random_spec.lua",
  _dropout = "spec/ops/random_spec.lua",
  _dropout_backward = "spec/ops/random_spec.lua",
  _linear_backward_weight = "spec/ops/pairs_spec.lua (fc_backward)",
  _exponent = "spec/ops/matrix_spec.lua (frexp)",
  _nextafter = "spec/ops/matrix_spec.lua (nextafter)",
  _slice = "spec/index_spec.lua",
  _as_strided = "spec/views_spec.lua",
  _alias = "spec/autograd_spec.lua",
}
