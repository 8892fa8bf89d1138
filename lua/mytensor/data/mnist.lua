-- lua/mytensor/data/mnist.lua: MNIST, and Fashion-MNIST, which has the same four files.

local check = require "mytensor.check"
local idx = require "mytensor.data.idx"
local TensorDataset = require "mytensor.data.dataset"

local mnist = {}

local fashion = {
  name = "fashion_mnist",
  folders = { "/usr/share/datasets/fashion-mnist", "data/fashion-mnist", "data" },
  classes = {
    "T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
    "Bag", "Boot",
  },
  advice = "on Debian and Ubuntu: apt install dataset-fashion-mnist; elsewhere:"
    .. " https://github.com/zalandoresearch/fashion-mnist",
}

local digits = {
  name = "mnist",
  folders = { "/usr/share/datasets/mnist", "data/mnist", "data" },
  classes = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" },
  advice = "see http://yann.lecun.com/exdb/mnist",
}

local files = {
  "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
}

-- The path of a file as it is or with .gz, or nil.
local function find(folder, file)
  for _, suffix in ipairs { "", ".gz" } do
    local path = folder .. "/" .. file .. suffix
    local handle = io.open(path, "rb")
    if handle then
      handle:close()
      return path
    end
  end
end

-- The paths of the four files in the first folder that has all; or nil and a message.
local function locate(set, folder)
  local folders = folder and { folder } or set.folders
  local from_environment = os.getenv "MYTENSOR_DATA"
  if not folder and from_environment then
    folders = { from_environment, from_environment .. "/" .. set.name,
                table.unpack(set.folders) }
  end
  local report = {}
  for i, candidate in ipairs(folders) do
    local paths, missing = {}, {}
    for _, file in ipairs(files) do
      local path = find(candidate, file)
      table.insert(path and paths or missing, path or file)
    end
    if not missing[1] then return paths end
    report[i] = #missing == #files and candidate
                or ("%s (without %s)"):format(candidate, table.concat(missing, ", "))
  end
  local text = "%s: the files\n  %s\n(each plain or with .gz) are not in\n  %s\n%s"
  return nil, text:format(set.name, table.concat(files, "\n  "),
                          table.concat(report, "\n  "), set.advice)
end

-- Images and labels of one half; or nil and a message.
local function read_half(image_path, label_path, class_count)
  local images, labels, message
  images, message = idx(image_path)
  if not images then return nil, message end
  labels, message = idx(label_path)
  if not labels then return nil, message end
  if images:dim() ~= 3 or images:dtype() ~= "uint8" then
    return nil, ("%s: uint8 images (N, H, W) expected, got %s %s"):format(
      image_path, images:dtype(), check.shape_text(images:shape()))
  end
  if labels:dim() ~= 1 or labels:dtype() ~= "uint8" then
    return nil, ("%s: uint8 labels (N) expected, got %s %s"):format(
      label_path, labels:dtype(), check.shape_text(labels:shape()))
  end
  if labels:size(1) ~= images:size(1) then
    return nil, ("%s: %d labels for %d images"):format(label_path, labels:size(1),
                                                       images:size(1))
  end
  if labels:numel() > 0 then
    local largest = labels:max():item()
    if largest >= class_count then
      return nil, ("%s: label %d, but there are %d classes (0 to %d)"):format(
        label_path, largest, class_count, class_count - 1)
    end
  end
  local pixels = images:unsqueeze(2):to("float32")
  return TensorDataset({ pixels:div_(255), labels:to("int64"):add_(1) },
                       { "images", "labels" })
end

local function load(set, folder)
  if folder ~= nil then check.type(1, set.name, folder, "string") end
  local paths, message = locate(set, folder)
  if not paths then return nil, message end
  local train, test
  train, message = read_half(paths[1], paths[2], #set.classes)
  if not train then return nil, message end
  test, message = read_half(paths[3], paths[4], #set.classes)
  if not test then return nil, message end
  local classes = table.move(set.classes, 1, #set.classes, 1, {})
  return { train = train, test = test, classes = classes }
end

--- Fashion-MNIST: 60,000 and 10,000 grey images of clothes, 28 x 28, in ten classes
--- (Xiao et al., arXiv 1708.07747). The four files, plain or .gz, are looked for in
--- `folder`; or in $MYTENSOR_DATA, $MYTENSOR_DATA/fashion_mnist,
--- /usr/share/datasets/fashion-mnist, data/fashion-mnist and data.
--- @param folder? string
--- @return table? { train =, test =, classes = {names} }; train and test are
---   TensorDatasets with images (N, 1, 28, 28) float32 in 0..1 and labels (N) int64 in
---   1..10; nil if a file is missing or corrupt
--- @return string? message
function mnist.fashion_mnist(folder)
  return load(fashion, folder)
end

--- MNIST, the handwritten digits: as `fashion_mnist`; label i is the digit i - 1.
--- Folders: $MYTENSOR_DATA, $MYTENSOR_DATA/mnist, /usr/share/datasets/mnist,
--- data/mnist, data.
--- @param folder? string
--- @return table?
--- @return string? message
function mnist.mnist(folder)
  return load(digits, folder)
end

return mnist
