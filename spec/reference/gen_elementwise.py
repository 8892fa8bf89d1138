# spec/reference/gen_elementwise.py: unary, binary, ternary operators and comparisons.
import torch
import torch.nn.functional as F

from refdata import case, f64, grid, integers

INF, NAN = float("inf"), float("nan")
SIGNED = [torch.int64, torch.int32, torch.int16, torch.int8]
INTS = SIGNED + [torch.uint8]

# kinks, ties of rounding, signed zeros, infinities, NaN, and values at which a careless
# formula overflows or loses all digits
SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, -3, 6, -6, 2 ** -13,
           -(2 ** -13), 1e-30, -1e-30, 18.5, -18.5, 100, -100, 10000, -10000,
           INF, -INF, NAN]


def unary(op, fn, low=-3.0, high=3.0, attrs=None, more=(), check=True, open_nan=False,
          ints=None, special=True, step=1 / 64, grad=True, suffix="", kinks=()):
    """The same shapes for every unary op: a matrix with a tail, the special values, a
    row of more than one block, 0-dim and empty."""
    def add(name, x, **kw):
        case(op, name + suffix, [x], fn, attrs=attrs, grad=grad, open_at=kinks, **kw)
    shift = step / 2  # keeps the difference quotients off the kinks
    x = grid(3, 5, low=low, high=high - step, step=step) + shift
    add("matrix", x, check=check)
    add("row with a tail", grid(1, 67, low=low, high=high, step=step))
    add("three dims", grid(2, 3, 4, low=low, high=high - step, step=step) + shift)
    add("0-dim", grid(low=low, high=high - step, step=step) + shift, check=check)
    add("empty", torch.zeros(2, 0, 3, dtype=torch.float64))
    if special:
        add("special values", f64(list(SPECIAL) + list(more)), open_nan=open_nan)
    for dtype in ints or []:
        low_int = 0 if dtype == torch.uint8 else -9
        add("matrix of " + str(dtype)[6:], integers(low_int, 9, 3, 5, dtype=dtype))


def unaries():
    unary("abs", torch.abs, ints=SIGNED)
    unary("neg", torch.neg, ints=SIGNED)
    # PyTorch gives 0 for NaN; here NaN passes through
    unary("sign", lambda x: torch.where(x != x, x, torch.sign(x)), ints=INTS)
    unary("exp", torch.exp)
    unary("expm1", torch.expm1)
    unary("log", torch.log, low=0.125)
    unary("log1p", torch.log1p, low=-0.875)
    unary("log2", torch.log2, low=0.125)
    unary("log10", torch.log10, low=0.125)
    unary("sqrt", torch.sqrt, low=0.125)
    unary("rsqrt", torch.rsqrt, low=0.125)
    unary("reciprocal", torch.reciprocal, low=0.25)
    unary("square", torch.square, ints=INTS)
    unary("sin", torch.sin)
    unary("cos", torch.cos)
    unary("tan", torch.tan, low=-1.25, high=1.25)
    unary("asin", torch.asin, low=-0.875, high=0.875)
    unary("acos", torch.acos, low=-0.875, high=0.875)
    unary("atan", torch.atan)
    unary("sinh", torch.sinh)
    unary("cosh", torch.cosh)
    unary("tanh", torch.tanh)
    unary("erf", torch.erf)
    unary("erfc", torch.erfc)
    for name in "floor ceil round trunc".split():
        unary(name, getattr(torch, name), step=1 / 8)
    unary("frac", torch.frac, step=1 / 8, open_nan=True)
    unary("sigmoid", torch.sigmoid)
    unary("relu", torch.relu, ints=SIGNED)
    unary("leaky_relu", F.leaky_relu)
    unary("leaky_relu", lambda x: F.leaky_relu(x, 0.25), attrs=dict(slope=0.25),
          suffix=", slope 0.25")
    unary("elu", F.elu)
    unary("elu", lambda x: F.elu(x, 1.5), attrs=dict(alpha=1.5), suffix=", alpha 1.5")
    unary("gelu", F.gelu, open_nan=True)
    unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), open_nan=True)
    unary("silu", F.silu, open_nan=True)
    unary("softplus", lambda x: torch.logaddexp(x, torch.zeros_like(x)))
    # at -3 and 3 PyTorch's scalar and vector code give different gradients
    unary("hardswish", F.hardswish, open_nan=True, kinks=(-3, 3))
    unary("mish", F.mish, open_nan=True)
    unary("clamp", lambda x: torch.clamp(x, -1.5, 1), attrs=dict(lo=-1.5, hi=1))
    unary("clamp", lambda x: torch.clamp(x, min=-0.5), attrs=dict(lo=-0.5),
          suffix=", only lo")
    unary("clamp", lambda x: torch.clamp(x, max=2), attrs=dict(hi=2), suffix=", only hi")
    for dtype in INTS:
        x = integers(0 if dtype == torch.uint8 else -9, 9, 3, 5, dtype=dtype)
        case("clamp", "matrix of " + str(dtype)[6:], [x],
             lambda t: torch.clamp(t, 2, 5), attrs=dict(lo=2, hi=5))
    for dtype in INTS:
        case("bitwise_not", str(dtype)[6:], [integers(0, 99, 3, 5, dtype=dtype)],
             torch.bitwise_not)
    case("bitwise_not", "bools", [torch.tensor([True, False])], torch.bitwise_not)
    for name in "isnan isinf isfinite logical_not".split():
        unary(name, getattr(torch, name), grad=False, check=False)


PAIR = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, 100, INF, -INF, NAN]


def cross(values):
    n = len(values)
    a = f64(values).reshape(n, 1).expand(n, n).contiguous()
    b = f64(values).reshape(1, n).expand(n, n).contiguous()
    return a, b


def binary(op, fn, a_low=-3.0, b_low=-3.0, ints=None, grad=True, b_positive_ints=False,
           special=PAIR, open_nan=False, check=True, step=1 / 64, small_ints=9):
    def add(name, a, b, **kw):
        case(op, name, [a, b], fn, grad=grad, **kw)
    shift = step / 2
    a = grid(3, 5, low=a_low, high=3 - step, step=step) + shift
    b = grid(3, 5, low=b_low, high=3 - step, step=step) + shift / 2
    add("same shapes", a, b, check=check)
    add("broadcast rows and columns", grid(3, 1, low=a_low, step=step) + shift,
        grid(1, 5, low=b_low, step=step) + shift / 2, check=check)
    add("broadcast a leading dim", grid(4, low=a_low, step=step) + shift,
        grid(2, 3, 4, low=b_low, step=step) + shift / 2)
    add("matrix and 0-dim", grid(3, 4, low=a_low, step=step) + shift,
        grid(low=b_low, step=step) + shift / 2, check=check)
    add("row with a tail", grid(67, low=a_low, step=step), grid(67, low=b_low, step=step)
        + shift / 2)
    add("0-dim", grid(low=a_low, step=step) + shift, grid(low=b_low, step=step) + shift / 2)
    add("empty", torch.zeros(2, 0, dtype=torch.float64),
        torch.ones(1, 1, dtype=torch.float64))
    if special:
        add("special values", *cross(special), open_nan=open_nan)
    for dtype in ints or []:
        low = 0 if dtype == torch.uint8 else -small_ints
        b = integers(1 if b_positive_ints else low, small_ints, 4, 5, dtype=dtype)
        if b_positive_ints and dtype != torch.uint8 and op != "pow":
            b[1:3] = -b[1:3]
        a = integers(low, small_ints, 4, 5, dtype=dtype)
        add("integers " + str(dtype)[6:], a, b)


def wrap(op, fn):
    """Integer overflow wraps."""
    edge = {torch.int64: 2 ** 63, torch.int32: 2 ** 31, torch.int16: 2 ** 15,
            torch.int8: 2 ** 7}
    for dtype, m in edge.items():
        a = torch.tensor([m - 1, -m, m - 1, -m, m // 2], dtype=dtype)
        b = torch.tensor([1, -1, m - 1, -m, 3], dtype=dtype)
        case(op, "wrap " + str(dtype)[6:], [a, b], fn)
    case(op, "wrap uint8", [torch.tensor([255, 0, 200, 16], dtype=torch.uint8),
                            torch.tensor([1, 1, 100, 16], dtype=torch.uint8)], fn)


def binaries():
    binary("add", torch.add, ints=INTS)
    binary("sub", torch.sub, ints=INTS)
    binary("mul", torch.mul, ints=INTS)
    for name in ("add", "sub", "mul"):
        wrap(name, getattr(torch, name))
    binary("div", torch.div, b_low=0.25)
    binary("pow", torch.pow, a_low=0.125, ints=INTS, b_positive_ints=True, small_ints=4)
    case("pow", "whole exponents of negative bases",
         [f64([-2, -2, -2, -0.5, 3, 0]), f64([2, 3, -1, 4, 0, 2])], torch.pow)
    binary("maximum", torch.maximum, ints=INTS)
    case("maximum", "ties share the gradient", [f64([1, 2, 3, 3]), f64([1, 2, 4, 3])],
         torch.maximum)
    binary("minimum", torch.minimum, ints=INTS)
    case("minimum", "ties share the gradient", [f64([1, 2, 3, 3]), f64([1, 2, 4, 3])],
         torch.minimum)
    whole = [0.5, -0.5, 1, -1, 2.5, -2.5, 3, -3, 7, -7]
    for name, fn in dict(
            fmod=torch.fmod, remainder=torch.remainder,
            floordiv=lambda a, b: torch.div(a, b, rounding_mode="floor")).items():
        binary(name, fn, b_low=0.75, ints=INTS, b_positive_ints=True, special=None,
               check=False)
        case(name, "signs", list(cross(whole)), fn)
        # no quotient of this case lies near a whole number
        case(name, "smooth", [f64([[5.25, -7.5, 1.75], [9.5, 0.625, -2.25]]),
                              f64([[2, 2, -1], [-4, 3, 1.5]])], fn, check=True)
    case("fmod", "infinities", [f64([1, -1, 0, INF, NAN]), f64([INF, INF, INF, 2, 2])],
         torch.fmod)
    case("floordiv", "zero divisor", [f64([1, -1, 5]), f64([0, 0, -0.0])],
         lambda a, b: torch.div(a, b, rounding_mode="floor"))
    binary("atan2", torch.atan2, a_low=0.25)
    binary("hypot", torch.hypot, a_low=0.25)
    case("hypot", "no overflow", [f64([3e30, 0, 1e-30]), f64([4e30, 0, 0])], torch.hypot)
    for name in "eq ne lt le gt ge".split():
        binary(name, getattr(torch, name), grad=False, ints=INTS, check=False)
        case(name, "ties", [f64([1, 2, 3, 0]), f64([1, 3, 2, -0.0])],
             getattr(torch, name), grad=False)
        big = torch.tensor([2 ** 53, 2 ** 53 + 1, 2 ** 62], dtype=torch.int64)
        other = torch.tensor([2 ** 53 + 1, 2 ** 53, 2 ** 62], dtype=torch.int64)
        case(name, "int64 beyond 2^53", [big, other], getattr(torch, name), grad=False)
    for name in "logical_and logical_or logical_xor".split():
        binary(name, getattr(torch, name), grad=False, ints=INTS, check=False,
               special=[0.0, -0.0, 1, -1, INF, NAN])
        a = torch.tensor([True, True, False, False])
        b = torch.tensor([True, False, True, False])
        case(name, "bools", [a, b], getattr(torch, name), grad=False)
    case("logical_not", "bools", [torch.tensor([True, False])], torch.logical_not,
         grad=False)
    case("logical_not", "integers", [torch.tensor([0, 1, -3])], torch.logical_not,
         grad=False)


def bits():
    pairs = dict(bitwise_and=torch.bitwise_and, bitwise_or=torch.bitwise_or,
                 bitwise_xor=torch.bitwise_xor)
    for name, fn in pairs.items():
        for dtype in INTS:
            low = 0 if dtype == torch.uint8 else -99
            case(name, str(dtype)[6:], [integers(low, 99, 3, 5, dtype=dtype),
                                        integers(low, 99, 3, 5, dtype=dtype)], fn)
        case(name, "bools", [torch.tensor([True, True, False, False]),
                             torch.tensor([True, False, True, False])], fn)
        case(name, "broadcast", [integers(0, 99, 3, 1), integers(0, 99, 4)], fn)
    for dtype in INTS:
        low = 0 if dtype == torch.uint8 else -99
        a, b = integers(low, 99, 3, 5, dtype=dtype), integers(0, 6, 3, 5, dtype=dtype)
        case("bitwise_left_shift", str(dtype)[6:], [a, b], torch.bitwise_left_shift)
        case("bitwise_right_shift", str(dtype)[6:], [a, b], torch.bitwise_right_shift)
    a = torch.tensor([5, -5, 5, -5, 5, -5])
    b = torch.tensor([64, 64, -1, -1, 63, 63])
    case("bitwise_left_shift", "far", [a, b],
         lambda a, b: torch.tensor([0, 0, 0, 0, -2 ** 63, -2 ** 63]))
    case("bitwise_right_shift", "far", [a, b],
         lambda a, b: torch.tensor([0, -1, 0, -1, 0, -1]))


def ternaries():
    s = (3, 4)
    case("lerp", "same shapes", [grid(*s), grid(*s), grid(*s, low=-1, high=2)],
         torch.lerp, check=True)
    case("lerp", "broadcast", [grid(3, 1), grid(1, 4), grid(2, 1, 1)],
         torch.lerp, check=True)
    case("lerp", "row with a tail", [grid(37), grid(37), grid(37)], torch.lerp)
    case("lerp", "0-dim", [grid(), grid(), grid()], torch.lerp)
    case("lerp", "empty", [grid(0, 2), grid(0, 2), grid(0, 2)], torch.lerp)
    case("lerp", "the ends are exact", [f64([3, 1e8]), f64([1e8, 3]), f64([1, 1])],
         torch.lerp)
    def addcmul(value):
        return lambda x, a, b: torch.addcmul(x, a, b, value=value)
    case("addcmul", "same shapes", [grid(*s), grid(*s), grid(*s)], addcmul(1), check=True)
    case("addcmul", "broadcast", [grid(3, 1), grid(1, 4), grid(2, 1, 1)],
         addcmul(-0.5), attrs=dict(value=-0.5), check=True)
    case("addcmul", "row with a tail", [grid(37), grid(37), grid(37)], addcmul(2),
         attrs=dict(value=2))
    def addcdiv(value):
        return lambda x, a, b: torch.addcdiv(x, a, b, value=value)
    case("addcdiv", "same shapes", [grid(*s), grid(*s), grid(*s, low=0.5)], addcdiv(1),
         check=True)
    case("addcdiv", "broadcast", [grid(3, 1), grid(1, 4), grid(2, 1, 1, low=0.5)],
         addcdiv(-0.5), attrs=dict(value=-0.5), check=True)
    case("addcdiv", "row with a tail", [grid(37), grid(37), grid(37, low=0.5)],
         addcdiv(2), attrs=dict(value=2))
    case("addcdiv", "0-dim", [grid(), grid(), grid(low=0.5)], addcdiv(1))
    case("addcdiv", "empty", [grid(0, 2), grid(0, 2), grid(0, 2)], addcdiv(1))
    case("addcmul", "0-dim", [grid(), grid(), grid()], addcmul(1))
    case("addcmul", "empty", [grid(0, 2), grid(0, 2), grid(0, 2)], addcmul(1))

    def mask(*shape):
        return integers(0, 1, *shape).bool()
    where = torch.where
    case("where", "same shapes", [mask(*s), grid(*s), grid(*s)], where, check=True)
    case("where", "broadcast", [mask(3, 1), grid(1, 4), grid(2, 1, 1)], where, check=True)
    case("where", "row with a tail", [mask(37), grid(37), grid(37)], where)
    case("where", "the branch not taken does not leak",
         [torch.tensor([True, False, True]), f64([1, NAN, 3]), f64([INF, 2, NAN])], where,
         keep_nan_gradient=True)
    case("where", "0-dim", [mask(), grid(), grid()], where)
    case("where", "empty", [mask(0, 2), grid(0, 2), grid(0, 2)], where)
    for dtype in INTS:
        case("where", "integers " + str(dtype)[6:], [
            mask(*s), integers(0, 9, *s, dtype=dtype), integers(0, 9, *s, dtype=dtype)],
            where)

    def fill(x, m, value):
        return x.masked_fill(m, value)
    case("masked_fill", "same shapes", [grid(*s), mask(*s), 2.5], fill, check=True)
    case("masked_fill", "mask broadcast", [grid(2, 3, 4), mask(3, 1), -1], fill,
         check=True)
    case("masked_fill", "a value that has a gradient", [grid(2, 3), mask(2, 3), grid()],
         fill, check=True)
    case("masked_fill", "NaN under the mask", [f64([NAN, 1, INF]),
         torch.tensor([True, False, True]), 0], fill, keep_nan_gradient=True)
    case("masked_fill", "infinity", [grid(3, 37), mask(3, 37), -INF], fill)
    case("masked_fill", "0-dim", [grid(), mask(), 1], fill)
    case("masked_fill", "empty", [grid(0, 2), mask(0, 2), 1], fill)
    for dtype in INTS:
        case("masked_fill", "integers " + str(dtype)[6:],
             [integers(0, 9, *s, dtype=dtype), mask(*s), 7], fill)
    for op, fn in dict(clone=torch.clone, contiguous=torch.clone).items():
        case(op, "matrix", [grid(3, 5)], fn, check=True, exact=True)
        case(op, "special values", [f64(SPECIAL)], fn, exact=True)
        case(op, "0-dim", [grid()], fn, exact=True)
        case(op, "empty", [grid(2, 0)], fn, exact=True)
        for dtype in INTS:
            case(op, str(dtype)[6:], [integers(0, 9, *s, dtype=dtype)], fn, exact=True)
    case("fill", "matrix", [grid(3, 5)], lambda x: x * 0 + 2.5, attrs=dict(value=2.5),
         check=True)
    case("fill", "int64", [integers(0, 9, 3, 5)], lambda x: x * 0 + 7,
         attrs=dict(value=7))
    case("fill", "empty", [grid(0, 2)], lambda x: x * 0, attrs=dict(value=7))


def generate():
    unaries()
    binaries()
    bits()
    ternaries()
