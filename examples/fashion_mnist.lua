-- examples/fashion_mnist.lua: a convolutional network learns to tell clothes apart.
--
--     mtlua examples/fashion_mnist.lua          (--help shows the options)
--
-- 60,000 images of 28 x 28 grey pixels, in ten classes; 10,000 others for the test.

local mt = require "mytensor"
local nn, utils = mt.nn, mt.utils

local options = utils.options(arg, "mtlua examples/fashion_mnist.lua [options]", {
  { "epochs", "integer", 3, "passes over the training images" },
  { "batch", "integer", 64, "images in a step" },
  { "lr", "number", 0.05, "learning rate at the start" },
  { "seed", "integer", 1, "of the weights and of the order of the images" },
  { "device", "string", nil, "cpu, cuda, ..." },
  { "data", "string", nil, "folder of the four files" },
  { "out", "string", "fashion_mnist.safetensors", "where the parameters go" },
})

local function stop(text, status)
  io.stderr:write(text, "\n")
  os.exit(status, true)
end
if options.epochs < 1 then stop("option '--epochs': 1 or more", 2) end
if options.batch < 1 then stop("option '--batch': 1 or more", 2) end
if options.device then
  local ok, why = pcall(function()
    mt.set_default_device(options.device)
    mt.zeros(1)
  end)
  if not ok then stop("option '--device': " .. why, 2) end
end

local data, message = mt.data.fashion_mnist(options.data)
if not data then stop(message, 1) end
mt.manual_seed(options.seed)

-- The network: (N, 1, 28, 28) -> (N, 16, 12, 12) -> (N, 32, 4, 4) -> (N, 10)
local model = nn.Sequential(
  nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
  nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
  nn.Flatten(),
  nn.Linear(512, 128), nn.ReLU(),
  nn.Linear(128, 10))
print(model)

local device = model[1].weight:device()
local train, test = data.train:to(device), data.test:to(device)
local loader = mt.data.DataLoader {
  dataset = train, batch_size = options.batch, shuffle = true,
}
local criterion = nn.CrossEntropyLoss()
local optimiser = mt.optim.SGD(model:parameters(), { lr = options.lr, momentum = 0.9 })

-- Training. The learning rate falls to 0 along half a cosine.
local step, steps = 0, options.epochs * #loader
for epoch = 1, options.epochs do
  local bar = utils.Progress {
    total = #train, unit = "images",
    label = ("epoch %d/%d"):format(epoch, options.epochs),
  }
  for _, images, labels in loader:iter() do
    local share = (1 + math.cos(math.pi * step / steps)) / 2
    optimiser.param_groups[1].lr = options.lr * share
    local loss = criterion(model(images), labels)
    optimiser:zero_grad()
    loss:backward()
    optimiser:step()
    step = step + 1
    if bar:advance(images:size(1)) then bar:show(("loss %.4f"):format(loss:item())) end
  end
  bar:finish()
end

-- The test: what the network thinks of images that it has never seen.
model:eval()
local guesses = mt.no_grad(function()
  local parts = {}
  for i, images in mt.data.DataLoader { dataset = test, batch_size = 1000 }:iter() do
    parts[i] = model(images):argmax(2)
  end
  return mt.cat(parts)
end)

print "\nRows are the truth, columns the guesses:\n"
print(utils.confusion_text(utils.confusion(test.labels, guesses, 10), data.classes))

print "\nThe first eight test images:\n"
local captions = {}
for i = 1, 8 do
  local guess, truth = guesses[i]:item(), test.labels[i]:item()
  captions[i] = {
    "guess: " .. data.classes[guess],
    "truth: " .. data.classes[truth] .. (guess == truth and "" or " !"),
  }
end
print(utils.draw_images(test.images:narrow(1, 1, 8), { captions = captions }))

assert(mt.save_tensors(options.out, model:state_dict(), { network = tostring(model) }))
print(("The parameters are in %s"):format(options.out))
local right = guesses:eq(test.labels):to("float32")
print(("test accuracy %.4f"):format(right:mean():item()))
