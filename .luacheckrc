-- .luacheckrc: settings of luacheck for `make lint`.
std = "lua54"
max_line_length = 88
exclude_files = { "build", "lua/mytensor/meta.lua", "spec/reference" }
files["spec"].std = "lua54+busted"
