-- spec/support/words.lua: the words of the formulas in kernels/ops.def, in Lua: an
-- independent second reading of the table.

local words = {}
local huge, abs, exp, log = math.huge, math.abs, math.exp, math.log

local function truth(x) return x ~= 0 and x ~= false end
local function bit(x) return x and 1 or 0 end

function words.num(x) return x + 0.0 end
function words.where(c, a, b) if truth(c) then return a end return b end
function words.both(a, b) return bit(truth(a) and truth(b)) end
function words.either(a, b) return bit(truth(a) or truth(b)) end
function words.eq(a, b) return bit(a == b) end
function words.ne(a, b) return bit(a ~= b) end
function words.lt(a, b) return bit(a < b) end
function words.le(a, b) return bit(a <= b) end
function words.gt(a, b) return bit(a > b) end
function words.ge(a, b) return bit(a >= b) end
words["isnan"] = function(x) return bit(x ~= x) end
function words.isinf(x) return bit(abs(x) == huge) end
function words.isfinite(x) return bit(x == x and abs(x) ~= huge) end

words.abs, words.exp, words.sqrt, words.sin = abs, exp, math.sqrt, math.sin
words.cos, words.tan, words.asin, words.acos = math.cos, math.tan, math.asin, math.acos
function words.log(x) return log(x) end
function words.log2(x) return log(x, 2) end
function words.log10(x) return log(x, 10) end
function words.atan(x) return math.atan(x) end
function words.atan2(a, b) return math.atan(a, b) end
function words.fmod(a, b)
  if abs(b) == huge and abs(a) < huge then return a end
  return math.fmod(a, b)
end
function words.remainder(a, b) return a % b end
function words.floordiv(a, b) return a // b end

function words.sign(x)
  if x ~= x then return x end
  return x > 0 and 1 or x < 0 and -1 or 0
end

-- math.floor gives integers, which is not what infinities and NaN need
local function floor(x)
  if x ~= x or abs(x) >= 2 ^ 52 then return x end
  return math.floor(x) + 0.0
end
words.floor = floor
function words.ceil(x) return -floor(-x) end
function words.trunc(x) return x < 0 and -floor(-x) or floor(x) end
function words.round(x)
  local below = floor(x)
  local rest = x - below
  if rest > 0.5 or (rest == 0.5 and below % 2 == 1) then return below + 1 end
  return below
end

-- exp(x) - 1 and log(1 + x) after Kahan: the error of the rounded argument cancels
function words.expm1(x)
  local u = exp(x)
  if u == 1 then return x end
  if u - 1 == -1 then return -1.0 end
  if u == huge then return huge end
  return abs(x) > 1 and u - 1 or (u - 1) * x / log(u)
end
function words.log1p(x)
  local u = 1 + x
  if u == 1 then return x end
  if u == huge then return huge end
  return log(u) * x / (u - 1)
end

function words.sinh(x)
  if abs(x) > 700 then
    return exp(x / 2) / 2 * exp(x / 2) - exp(-x / 2) / 2 * exp(-x / 2)
  end
  local t = words.expm1(abs(x))
  local y = (t + t / (t + 1)) / 2
  return x < 0 and -y or y
end
function words.cosh(x)
  if abs(x) > 700 then return exp(abs(x) / 2) / 2 * exp(abs(x) / 2) end
  return (exp(x) + exp(-x)) / 2
end
function words.tanh(x)
  if abs(x) > 20 then return x > 0 and 1.0 or -1.0 end
  local t = words.expm1(2 * x)
  return t / (t + 2)
end

-- erf by its Taylor series, erfc further out by its continued fraction (Abramowitz and
-- Stegun 7.1.6 and 7.1.14)
local function erf_series(x)
  local term, sum, n = x, x, 0
  repeat
    n = n + 1
    term = term * 2 * x * x / (2 * n + 1)
    sum = sum + term
  until abs(term) <= 1e-17 * abs(sum)
  return 2 / math.sqrt(math.pi) * exp(-x * x) * sum
end
local function erfc_fraction(x)
  local f = 0
  for k = 120, 1, -1 do f = k / 2 / (x + f) end
  return exp(-x * x) / math.sqrt(math.pi) / (x + f)
end
function words.erf(x)
  if x ~= x then return x end
  if abs(x) < 2.5 then return erf_series(x) end
  return x > 0 and 1 - erfc_fraction(x) or erfc_fraction(-x) - 1
end
function words.erfc(x)
  if x ~= x then return x end
  if x > 27 then return 0.0 end
  if x < -2.5 then return 2 - words.erfc(-x) end
  return x < 2.5 and 1 - erf_series(x) or erfc_fraction(x)
end

function words.sigmoid(x) return 1 / (1 + exp(-x)) end
function words.relu(x) return x <= 0 and 0 or x end
function words.softplus(x, beta, threshold)
  if beta * x > threshold then return x end
  return words.log1p(exp(beta * x)) / beta
end
function words.pow(a, b)
  if b == 0 or a == 1 then return 1.0 end
  return a ^ b
end
function words.hypot(a, b)
  if abs(a) == huge or abs(b) == huge then return huge end
  if a ~= a or b ~= b then return a + b end
  local m = math.max(abs(a), abs(b))
  if m == 0 then return 0.0 end
  return m * math.sqrt((a / m) ^ 2 + (b / m) ^ 2)
end

-- Lua's operators on integers wrap as the tensors' do
words.band = function(a, b) return a & b end
words.bor = function(a, b) return a | b end
words.bxor = function(a, b) return a ~ b end
words.bnot = function(a) return ~a end
words.shl = function(a, b)
  if b < 0 or b > 63 then return 0 end
  return a << b
end
words.shr = function(a, b)
  if b < 0 or b > 63 then return a < 0 and -1 or 0 end
  return a // (1 << math.min(b, 62)) // (b == 63 and 2 or 1)
end

return words
