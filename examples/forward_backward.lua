-- examples/forward_backward.lua: a training step by hand: no autograd, no modules, no
-- optimiser, only the functions that compute values and gradients.
--
-- A small convolutional network learns to tell horizontal stripes from vertical ones.

local mt = require "mytensor"
local nn = mt.nn

mt.manual_seed(1)

-- n images (n, 1, 12, 12) of noisy stripes, and their labels: 1 horizontal, 2 vertical.
local function stripes(n)
  local images, labels = mt.randn({ n, 1, 12, 12 }) * 0.3, mt.randint(1, 2, { n })
  for i = 1, n do
    local dim = labels[i]:item()
    for k = mt.randint(1, 4, { 1 }):item(), 12, 4 do
      images[i]:select(dim + 1, k):add_(1)
    end
  end
  return images, labels
end

local conv_w, conv_b = mt.randn(4, 1, 3, 3) * 0.3, mt.zeros(4)
local fc_w, fc_b = mt.randn(2, 100) * 0.1, mt.zeros(2)

-- Every value that the way back needs has a name.
local function forward(x)
  local a = nn.conv_forward(x, conv_w, conv_b, 1, 1, 0, 0) -- (n, 4, 10, 10)
  local r = a:relu_forward()
  local p, mask = nn.maxpool_forward(r, 2, 2, 2, 2, 0, 0) -- (n, 4, 5, 5)
  local f = p:reshape(-1, 100)
  return nn.fc_forward(f, fc_w, fc_b), a, r, p, mask, f -- logits (n, 2)
end

local lr = 0.2
for step = 1, 60 do
  local x, labels = stripes(32)
  local logits, a, r, p, mask, f = forward(x)
  local loss = nn.cross_entropy_forward(logits, labels)

  local dlogits = nn.cross_entropy_backward(logits, labels)
  local df, dfc_w, dfc_b = nn.fc_backward(f, fc_w, dlogits)
  local dr = nn.maxpool_backward(r, mask, df:reshape(p:shape()), 2, 2, 2, 2, 0, 0)
  local da = a:relu_backward(dr)
  local _, dconv_w, dconv_b = nn.conv_backward(x, conv_w, da, 1, 1, 0, 0)

  for parameter, gradient in pairs { [conv_w] = dconv_w, [conv_b] = dconv_b,
                                     [fc_w] = dfc_w, [fc_b] = dfc_b } do
    parameter:sub_(gradient * lr)
  end
  if step % 10 == 0 then print(("step %2d  loss %.4f"):format(step, loss:item())) end
end

local x, labels = stripes(500)
local guesses = forward(x):argmax(2)
print(("test accuracy %.4f"):format(guesses:eq(labels):to("float32"):mean():item()))
