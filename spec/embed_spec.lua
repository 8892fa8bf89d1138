-- spec/embed_spec.lua: a C program that embeds Lua and mytensor, and two states in one
-- process.

local shell = require "spec.support.shell"

describe("examples/embed", function()
  it("builds, runs, and closes its states", function()
    if not shell.exists "examples/embed/embed.c" then pending "not there yet" end
    if shell.run("command -v gcc").code ~= 0 then pending "no gcc" end
    local r = shell.run "make --no-print-directory embed"
    assert.equal(0, r.code, r.err)
    assert.is_true(#r.out > 0)
  end)
end)
