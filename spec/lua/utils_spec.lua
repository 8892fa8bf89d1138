-- spec/lua/utils_spec.lua: options, progress bars, drawn images, confusion matrices.

local mt = require "mytensor"
local shell = require "spec.support.shell"
local utils = mt.utils

describe("parse_options", function()
  local declared = {
    { "epochs", "integer", 3, "passes" }, { "lr", "number", 0.1, "learning rate" },
    { "out", "string", nil, "file" }, { "quiet", "boolean", false, "say less" },
  }
  local function parse(...) return utils.parse_options({ ... }, declared) end

  it("gives defaults, and values in both spellings", function()
    assert.same({ epochs = 3, lr = 0.1, quiet = false }, parse())
    assert.same({ epochs = 5, lr = 2, out = "a=b", quiet = true },
                parse("--epochs", "5", "--lr=2", "--out=a=b", "--quiet"))
    assert.equal(-1, parse("--epochs", "-1").epochs)
    assert.is_true(parse("--help").help)
  end)

  it("says what it doesn't understand", function()
    for text, args in pairs {
      ["unknown option '--epoch'"] = { "--epoch", "3" },
      ["option '--epochs' needs a value"] = { "--epochs" },
      ["option '--epochs' needs an integer, got '2.5'"] = { "--epochs", "2.5" },
      ["option '--lr' needs a number, got 'high'"] = { "--lr=high" },
      ["option '--quiet' takes no value"] = { "--quiet=1" },
      ["unexpected argument 'file'"] = { "file" },
    } do
      local result, message = utils.parse_options(args, declared)
      assert.is_nil(result)
      assert.equal(text, message)
    end
  end)
end)

describe("options", function()
  local code = [[
    local mt = require "mytensor"
    local o = mt.utils.options(%s, "script [options]",
                               { { "epochs", "integer", 3, "passes" } })
    print(o.epochs)]]

  it("ends the script after --help, and with status 2 after a mistake", function()
    local run = shell.lua_run(code:format '{ "--help" }')
    assert.equal(0, run.code)
    assert.equal("usage: script [options]\n  --epochs INTEGER   passes (3)\n"
                 .. "  --help             show this\n", run.out)
    run = shell.lua_run(code:format '{ "--epoch" }')
    assert.equal(2, run.code)
    assert.equal("unknown option '--epoch' (--help shows the options)\n", run.err)
    assert.equal("", run.out)
    assert.equal("5\n", shell.lua_run(code:format '{ "--epochs=5" }').out)
  end)
end)

describe("a progress bar", function()
  local now, output
  local function bar(interactive, utf8)
    now, output = 100, {}
    return utils.Progress {
      total = 1000, unit = "images", label = "epoch 1", interactive = interactive,
      utf8 = utf8, clock = function() return now end,
      write = function(text) output[#output + 1] = text end,
    }
  end

  it("is redrawn ten times a second on a terminal", function()
    local b = bar(true, true)
    local drawn = 0
    for _ = 1, 50 do
      now = now + 0.02
      if b:advance(10) then
        b:show "loss 1.5"
        drawn = drawn + 1
      end
    end
    assert.is_true(drawn >= 8 and drawn <= 11, tostring(drawn))
    assert.equal(drawn, #output)
    b:show()
    assert.equal("\repoch 1  ██████████░░░░░░░░░░   50%  500 images/s  loss 1.5"
                 .. "  0:01 left\27[K", output[#output])
    now = now + 1
    b:advance(500)
    b:finish()
    assert.equal("\repoch 1  ████████████████████  100%  500 images/s  loss 1.5"
                 .. "  in 2.0 s\27[K\n", output[#output])
  end)

  it("uses plain characters without UTF-8", function()
    local b = bar(true, false)
    now = now + 1
    b:advance(250)
    b:show()
    assert.equal("\repoch 1  #####...............   25%  250 images/s  0:03 left\27[K",
                 output[1])
  end)

  it("prints a line for each quarter elsewhere", function()
    local b = bar(false)
    for _ = 1, 100 do
      now = now + 0.01
      if b:advance(10) then b:show "loss 2" end
    end
    b:finish()
    assert.equal(4, #output)
    assert.equal("epoch 1   25%  1,000 images/s  loss 2  0:01 left\n", output[1])
    assert.equal("epoch 1  100%  1,000 images/s  loss 2  in 1.0 s\n", output[4])
  end)

  it("stands a total of 0", function()
    local b = utils.Progress { total = 0, interactive = false, write = function() end }
    b:finish()
  end)
end)

describe("draw_images", function()
  it("draws characters that grow darker, two rows of pixels a line", function()
    local images = mt.tensor { { { 0, 1 }, { 0, 1 } }, { { 0.5, 0 }, { 0.5, 0 } } }
    assert.equal(" @  + \na   b\n", utils.draw_images(images, {
      colour = false, captions = { { "a" }, { "b" } },
    }):gsub("= ", "+ "))
  end)

  it("draws half blocks in greys", function()
    local image = mt.tensor { { { 0 }, { 1 } } }
    assert.equal("\27[38;5;16;48;5;231m▀\27[0m\n",
                 utils.draw_images(image, { colour = true }))
  end)

  it("wraps rows, and shrinks images to the columns", function()
    local text = utils.draw_images(mt.ones(3, 1, 28, 28),
                                   { colour = false, per_row = 2, columns = 30 })
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(14, #lines)
    assert.equal(("@"):rep(14) .. "  " .. ("@"):rep(14), lines[1])
    assert.equal(("@"):rep(14), lines[8])
  end)

  it("wants images", function()
    local ok, message = pcall(utils.draw_images, mt.zeros(2, 3, 4, 4))
    assert.is_false(ok)
    assert.truthy(message:find("bad argument #1 to 'draw_images' (images (N, 1, H, W)"
                               .. " or (N, H, W) expected, got [2, 3, 4, 4])", 1, true),
                  message)
  end)
end)

describe("confusion", function()
  it("counts guesses by class", function()
    local labels = mt.tensor({ 1, 1, 2, 3, 3, 3 }, { dtype = "int64" })
    local guesses = mt.tensor({ 1, 2, 2, 3, 1, 3 }, { dtype = "int64" })
    local counts = utils.confusion(labels, guesses, 3)
    assert.same({ { 1, 1, 0 }, { 0, 1, 0 }, { 1, 0, 2 } }, counts:totable())
    assert.equal(table.concat({
      "      right  ant  bee  catt",
      "ant    50.0%     1    1    .",
      "bee   100.0%     .    1    .",
      "cattle  66.7%     1    .    2",
    }, "\n"):gsub(" +", " "),
      utils.confusion_text(counts, { "ant", "bee", "cattle" }):gsub(" +", " "))
  end)
end)
