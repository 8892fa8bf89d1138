-- mytensor-scm-1.rockspec: `luarocks make` in a clone builds and installs the module.
rockspec_format = "3.0"
package = "mytensor"
version = "scm-1"
source = {
  url = "git+https://github.com/mytensor/mytensor.git",
}
description = {
  summary = "Tensors, automatic differentiation and neural networks for Lua 5.4",
  detailed = [[
    Tensors on CPU and NVIDIA GPUs with strided views, ten element types, gradients of
    gradients, neural networks and optimisers. Needs gcc, make and zlib; OpenBLAS and
    oneDNN are used where they are found at run time.
  ]],
  license = "MIT",
}
dependencies = {
  "lua >= 5.4, < 5.5",
}
external_dependencies = {
  ZLIB = { header = "zlib.h" },
}
supported_platforms = { "linux" }
build = {
  type = "make",
  build_target = "module",
  install_target = "install-module",
  build_variables = {
    LUA_INCDIR = "$(LUA_INCDIR)",
    PLUGIN_DIR = "$(LIBDIR)",
  },
  install_variables = {
    LUA_INCDIR = "$(LUA_INCDIR)",
    MODULE_DIR = "$(LIBDIR)",
    PLUGIN_DIR = "$(LIBDIR)",
  },
}
