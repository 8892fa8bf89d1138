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

function words.exp2(x) return 2.0 ^ x end
function words.asinh(x)
  if x ~= x or abs(x) == huge then return x end
  local a = abs(x)
  local y = words.log1p(a + a * a / (1 + math.sqrt(a * a + 1)))
  return x < 0 and -y or y
end
function words.acosh(x)
  if x < 1 or x ~= x then return 0 / 0 end
  return 2 * log(math.sqrt((x + 1) / 2) + math.sqrt((x - 1) / 2))
end
function words.atanh(x)
  if abs(x) > 1 then return 0 / 0 end
  return words.log1p(2 * x / (1 - x)) / 2
end
function words.sinpi(x)
  if abs(x) == huge then return 0 / 0 end
  return math.sin(math.pi * math.fmod(x, 2))
end
function words.logit(x) return x == 1 and huge or log(x / (1 - x)) end
function words.xlogy(a, b) return a == 0 and b == b and 0.0 or a * log(b) end
function words.xlog1py(a, b)
  return a == 0 and b == b and 0.0 or a * words.log1p(b)
end
-- zeros and NaN have one, too
local function has_minus(x) return ("%f"):format(x):sub(1, 1) == "-" end
function words.copysign(a, b)
  if a ~= a then return a end
  return has_minus(b) and -abs(a) or abs(a)
end
words["signbit"] = function(x) return bit(has_minus(x)) end

-- Far to the right by Stirling's series, whose next terms are below 1e-16 there; what
-- lies between is a product, or a sum.
local FAR <const> = 40
local function is_pole(x) return x <= 0 and x == floor(x) and abs(x) ~= huge end
function words.lgamma(x)
  if x ~= x then return x end
  if abs(x) == huge or is_pole(x) then return huge end
  local y = 0.0
  while x < FAR do
    y = y - log(abs(x))
    x = x + 1
  end
  return y + (x - 0.5) * log(x) - x + log(2 * math.pi) / 2 + 1 / (12 * x)
    - 1 / (360 * x ^ 3) + 1 / (1260 * x ^ 5) - 1 / (1680 * x ^ 7)
end
function words.digamma(x)
  if x ~= x or x == huge then return x end
  if x == 0 then return 1 / x == huge and -huge or huge end
  if is_pole(x) or x == -huge then return 0 / 0 end
  local y = 0.0
  while x < FAR do
    y = y - 1 / x
    x = x + 1
  end
  return y + log(x) - 1 / (2 * x) - 1 / (12 * x ^ 2) + 1 / (120 * x ^ 4)
    - 1 / (252 * x ^ 6) + 1 / (240 * x ^ 8)
end
-- The sum of the first terms, and the rest as an integral with four corrections.
function words.polygamma(x, n)
  if x ~= x then return x end
  if x == huge then return 0.0 end
  if x == -huge then return 0 / 0 end
  local s, factorial, y = n + 1, 1, 0.0
  for k = 2, math.tointeger(n) do factorial = factorial * k end
  local sign = s % 2 == 0 and 1 or -1
  if is_pole(x) then return sign * huge end
  while x < FAR do
    y = y + x ^ -s
    x = x + 1
  end
  y = y + x ^ (1 - s) / (s - 1) + x ^ -s / 2 + s * x ^ (-s - 1) / 12
    - s * (s + 1) * (s + 2) * x ^ (-s - 3) / 720
    + s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * x ^ (-s - 5) / 30240
  return sign * factorial * y
end

-- The mean of exp(x cos t - |x|) (cos t) over a half circle: the trapezoid rule gains
-- digits with each point.
local function bessel(x, v)
  if x ~= x then return x end
  if abs(x) == huge then return 0.0 end
  local points, sum = 400, 0.0
  for k = 0, points do
    local c = math.cos(math.pi * k / points)
    local f = exp(x * c - abs(x)) * (v == 1 and c or 1)
    sum = sum + (k > 0 and k < points and f or f / 2)
  end
  return sum / points
end
function words.i0e(x) return bessel(x, 0) end
function words.i1e(x) return bessel(x, 1) end
function words.i0(x)
  if abs(x) == huge then return huge end
  return bessel(x, 0) * exp(abs(x))
end
function words.i1(x)
  if abs(x) == huge then return x end
  return bessel(x, 1) * exp(abs(x))
end

-- Bisection: slow and sure.
function words.erfinv(x)
  if x ~= x or abs(x) >= 1 then return abs(x) == 1 and x * huge or 0 / 0 end
  local low, high = -7.0, 7.0
  for _ = 1, 60 do
    local middle = (low + high) / 2
    if words.erf(middle) < x then low = middle else high = middle end
  end
  return (low + high) / 2
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

words.popcount = function(x)
  local n = 0
  for i = 0, 63 do n = n + (x >> i & 1) end
  return n
end
words.gcd = function(a, b)
  while b ~= 0 do a, b = b, math.fmod(a, b) end
  return a < 0 and -a or a
end
words.lcm = function(a, b)
  local divisor = words.gcd(a, b)
  if divisor == 0 then return 0 end
  local y = a // divisor * b
  return y < 0 and -y or y
end

return words
