-- .luacheckrc: settings of luacheck for `make lint`.
std = "lua54"
max_line_length = 88
self = false -- a method need not look at its object
exclude_files = { "build", "lua/mytensor/meta.lua", "spec/reference" }
files["spec"].std = "lua54+busted"
