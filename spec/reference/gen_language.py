# spec/reference/gen_language.py: the rest of the elementwise operators.
import torch
import torch.nn.functional as F

from gen_elementwise import INF, INTS, NAN, SIGNED, SPECIAL, binary, unary
from refdata import case, f64, grid, integers

special = torch.special
# as SPECIAL, without what overflows float32
MODEST = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, 3, -3, 6, 2 ** -13, 18.5, 60, INF,
          -INF, NAN]


def with_slope(value, slope):
    """A function with a derivative of its own, where PyTorch's has few digits."""
    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * slope(x)
    return Fn.apply


def polygamma(n, x):
    """PyTorch's own has 9 digits for n = 1."""
    if n == 0:
        return torch.digamma(x)
    sign = 1 if n % 2 else -1
    return sign * torch.exp(torch.lgamma(torch.tensor(n + 1.0).double())) * special.zeta(
        torch.tensor(n + 1.0).double(), x)


def erfinv(x):
    """PyTorch's ends with an error of 3e-9 near 1: one more step of Newton's."""
    y = torch.erfinv(x)
    a, z = x.abs(), y.abs()
    near = (a > 0.5) & (a < 1)
    step = (torch.erfc(z) - (1 - a)) * 3.141592653589793 ** 0.5 / 2 * torch.exp(z * z)
    return torch.where(near, torch.sign(x) * (z + step), y)


digamma = with_slope(torch.digamma, lambda x: polygamma(1, x))
erfinv = with_slope(erfinv, lambda x, f=erfinv: 3.141592653589793 ** 0.5 / 2 * torch.exp(
    f(x) ** 2))


def points(op, fn, values, attrs=None, name="special values", **kw):
    case(op, name, [f64(values)], fn, attrs=attrs, **kw)


def unaries():
    unary("exp2", torch.exp2)
    unary("asinh", torch.asinh)
    unary("acosh", torch.acosh, low=1.125, high=4.0)
    unary("atanh", torch.atanh, low=-0.875, high=0.875)
    unary("erfinv", erfinv, low=-0.9375, high=0.9375)
    points("erfinv", erfinv, [0.999999, -0.999999, 2 ** -24, 1e-20],
           name="near the ends and near 0")
    unary("lgamma", torch.lgamma, low=0.125, high=6.0, special=False)
    points("lgamma", torch.lgamma, MODEST + [-0.25, -2.5, -3.75, 1e4, 100, 1e-3])
    unary("digamma", digamma, low=0.125, high=6.0, special=False)
    points("digamma", digamma, [-0.25, -2.5, -3.75, 1e4, 100, 1e-3, 1, 2, INF, NAN])
    points("digamma", torch.digamma, [0.0, -0.0, -1, -2], name="poles", grad=False)
    for order in (0, 1, 2, 5):
        fn = with_slope(lambda x, n=order: polygamma(n, x),
                        lambda x, n=order: polygamma(n + 1, x))
        unary("polygamma", fn, low=0.5, high=6.0, attrs=dict(order=order), special=False,
              suffix=", order %d" % order)
    for order in (1, 2):
        points("polygamma", lambda x: polygamma(order, x),
               [-0.25, -1.375, -2.5, -3.75, 1e4, 100, 0.125, NAN],
               attrs=dict(order=order), name="special values of order %d" % order,
               grad=False)
        points("polygamma", lambda x: f64([INF, INF, 0] if order == 1 else [-INF, -INF, 0]),
               [0, -1, INF], attrs=dict(order=order), name="poles of order %d" % order,
               grad=False)
    for name in ("i0", "i0e", "i1", "i1e"):
        fn = getattr(special, name)
        unary(name, fn, special=False)
        values = [0.0, -0.0, 1e-3, 7.75, -8.25, 16, 19.75, 20.25, -30, 60, 80, NAN]
        points(name, fn, values)
        far = torch.tensor([0, INF, 0, -INF, 0.0]).double()[1::2] if name == "i1" else \
            f64([INF, INF] if name == "i0" else [0, 0])
        points(name, lambda x: far, [INF, -INF], name="infinities", grad=False)
    unary("sinc", torch.sinc, special=False)
    points("sinc", torch.sinc, [0, 0.5, -0.5, 1.5, 10.25, -99.75, 2 ** -13, INF, NAN])
    unary("logit", torch.logit, low=0.0625, high=0.9375)
    unary("logit", lambda x: torch.logit(x, 0.125), low=-0.25, high=1.25,
          attrs=dict(epsilon=0.125), suffix=", epsilon 0.125")
    unary("deg2rad", torch.deg2rad)
    unary("rad2deg", torch.rad2deg)


def activations():
    unary("logsigmoid", F.logsigmoid)
    unary("softsign", F.softsign, open_nan=True)
    unary("tanhshrink", F.tanhshrink, open_nan=True)
    unary("celu", F.celu)
    unary("celu", lambda x: F.celu(x, 1.5), attrs=dict(alpha=1.5), suffix=", alpha 1.5")
    unary("selu", F.selu)
    unary("relu6", F.relu6, low=-2.0, high=8.0, kinks=(0, 6))
    unary("hardtanh", F.hardtanh, kinks=(-1, 1))
    unary("hardtanh", lambda x: F.hardtanh(x, -2, 0.5), attrs=dict(lo=-2, hi=0.5),
          suffix=", given limits", kinks=(-2, 0.5))
    for dtype in SIGNED:
        x = integers(-9, 9, 3, 5, dtype=dtype)
        case("hardtanh", str(dtype)[6:], [x], lambda x: x.clamp(-4, 3),
             attrs=dict(lo=-4, hi=3))
        case("relu6", str(dtype)[6:], [x], lambda x: x.clamp(0, 6))
        case("threshold", str(dtype)[6:], [x], lambda x: x.where(x > 2, x * 0 - 3),
             attrs=dict(threshold=2, value=-3))
    # PyTorch's gradient is a sixth of float32
    unary("hardsigmoid", lambda x: torch.clamp(x / 6 + 0.5, 0, 1), low=-4.0, high=4.0, kinks=(-3, 3))
    unary("hardshrink", F.hardshrink)
    unary("hardshrink", lambda x: F.hardshrink(x, 1.25), attrs={"lambda": 1.25},
          suffix=", lambda 1.25")
    def softshrink(x, y):  # PyTorch 1.13 gives 0 for NaN
        return torch.where(x.detach() != x.detach(), x, F.softshrink(x, y))
    unary("softshrink", lambda x: softshrink(x, 0.5), kinks=(0.5, -0.5))
    unary("softshrink", lambda x: softshrink(x, 1.25), attrs={"lambda": 1.25},
          suffix=", lambda 1.25")
    unary("threshold", lambda x: F.threshold(x, 0.5, -2), attrs=dict(threshold=0.5, value=-2),
          kinks=(0.5,))
    case("glu", "last dim", [grid(3, 6)], lambda x: F.glu(x, -1), check=True)
    case("glu", "first dim", [grid(4, 3)], lambda x: F.glu(x, 0), attrs=dict(dim=1),
         check=True)
    case("glu", "empty", [grid(0, 2)], lambda x: F.glu(x, -1))
    x = grid(2, 3, 4) + 1 / 128
    case("prelu", "one weight", [x, f64([0.25])], F.prelu, check=True)
    case("prelu", "a weight for each channel", [x, grid(3)], F.prelu, check=True)
    case("prelu", "vector", [grid(5) + 1 / 128, f64([0.25])], F.prelu, check=True)


def tests():
    for name in "isposinf isneginf signbit".split():
        unary(name, getattr(torch, name), grad=False, check=False, ints=INTS,
              special=name != "signbit")
    points("signbit", torch.signbit, [v for v in SPECIAL if v == v], grad=False)
    a = f64([1, 1, 1, INF, INF, -INF, NAN, NAN, 0, 1e-9, 1000, 1000])
    b = f64([1, 1.00001, 1.1, INF, -INF, 0, NAN, 0, 1e-9, 0, 1000.005, 1000.1])
    case("isclose", "defaults", [a, b], torch.isclose, grad=False)
    case("isclose", "NaN equal", [a, b], lambda a, b: torch.isclose(a, b, equal_nan=True),
         attrs=dict(equal_nan=True), grad=False)
    case("isclose", "tolerances", [a, b], lambda a, b: torch.isclose(a, b, 0.25, 0.5),
         attrs=dict(rtol=0.25, atol=0.5), grad=False)
    case("isclose", "broadcast", [grid(3, 1, step=1), grid(1, 4, step=1)],
         lambda a, b: torch.isclose(a, b, 0, 1), attrs=dict(rtol=0, atol=1), grad=False)
    for dtype in INTS:
        case("isclose", str(dtype)[6:], [integers(0, 9, 3, 5, dtype=dtype),
                                         integers(0, 9, 3, 5, dtype=dtype)],
             lambda a, b: torch.isclose(a, b, 0.25, 1), attrs=dict(rtol=0.25, atol=1),
             grad=False)
    big = torch.tensor([2 ** 53, 2 ** 62, 5])
    case("isclose", "int64 beyond 2^53", [big, big], torch.isclose)


def binaries():
    for name in ("fmax", "fmin"):
        binary(name, getattr(torch, name), ints=INTS)
    # PyTorch leaves out the sign of a where b is -0
    binary("copysign", torch.copysign, special=None)
    case("copysign", "zeros and infinities", [f64([1, -1, 2, -2, INF, -INF, 0, 3]),
         f64([-0.0, 0.0, INF, -INF, -1, 1, -2, -5])], torch.copysign)
    binary("ldexp", torch.ldexp, special=None)
    case("ldexp", "whole exponents", [f64([1.5, -3, 0.75, 2 ** -100, 1, 1]),
         f64([4, -3, 100, -40, -140, 0])], torch.ldexp)
    binary("xlogy", torch.xlogy, b_low=0.125)
    binary("xlog1py", special.xlog1py, b_low=-0.875)
    binary("logaddexp", torch.logaddexp)
    binary("logaddexp2", torch.logaddexp2)
    def heaviside(a, b):
        step = torch.where(a != a, a.detach(), (a > 0).double())
        return torch.where(a == 0, b, step + 0 * b.detach().nan_to_num(0, 0, 0)) + 0 * \
            a.nan_to_num(0, 0, 0)
    binary("heaviside", heaviside, check=False, special=None)
    case("heaviside", "at 0", [f64([-1, 0, 2, -0.0, NAN]), f64([5, 6, 7, 8, 9])],
         lambda a, b: torch.where(a == 0, b, torch.where(a != a, a, (a > 0).double())),
         check=False, grad=False)
    case("heaviside", "smooth", [f64([[-1, 2, 0.5], [3, -4, 5]]), grid(2, 3)], heaviside,
         check=True)
    for dtype in INTS:
        low = 0 if dtype == torch.uint8 else -3
        case("heaviside", str(dtype)[6:], [integers(low, 3, 4, 5, dtype=dtype),
             integers(low, 3, 4, 5, dtype=dtype)], torch.heaviside)
        for name in ("gcd", "lcm"):
            low = 0 if dtype == torch.uint8 else -10
            case(name, str(dtype)[6:], [integers(low, 10, 4, 5, dtype=dtype),
                 integers(low, 10, 4, 5, dtype=dtype)], getattr(torch, name))
        low = 0 if dtype == torch.uint8 else -100
        x = integers(low, 100, 3, 5, dtype=dtype)
        mask = 2 ** 8 - 1 if dtype == torch.uint8 else 2 ** torch.iinfo(dtype).bits - 1
        case("popcount", str(dtype)[6:], [x], lambda x: torch.tensor(
            [[bin(v & mask).count("1") for v in row] for row in x.tolist()], dtype=dtype))
    for name in ("gcd", "lcm"):
        case(name, "broadcast", [integers(-99, 99, 3, 1), integers(-99, 99, 4)],
             getattr(torch, name))
    # what is the same in every dtype; the rest is in spec/ops/special_spec.lua
    x = f64([0.5, -3, 0.0, INF, NAN, 1, -INF])
    case("nextafter", "nothing between", [x, f64([0.5, -3, -0.0, INF, 1, NAN, -INF])],
         torch.nextafter, grad=False)
    case("nextafter", "0-dim", [f64(2), f64(2)], torch.nextafter, grad=False)


def parts():
    values = SPECIAL + [0.75, 2 ** 100, -2 ** -126]
    def nan_to_num(*numbers):
        return lambda x: torch.nan_to_num(x, *numbers)
    case("nan_to_num", "given", [f64(values)], nan_to_num(0.5, 7, -8),
         attrs=dict(nan=0.5, posinf=7, neginf=-8))
    case("nan_to_num", "finite", [grid(3, 5)], nan_to_num(), check=True)
    case("nan_to_num", "NaN only", [f64([1, NAN, -2])], nan_to_num(3.0),
         attrs=dict(nan=3))
    case("nan_to_num", "0-dim", [f64(NAN)], nan_to_num())
    case("nan_to_num", "empty", [grid(0, 2)], nan_to_num())
    for dtype in INTS:
        case("nan_to_num", str(dtype)[6:], [integers(0, 9, 3, 4, dtype=dtype)],
             nan_to_num())
    def frexp(x):
        m, e = torch.frexp(x.detach())
        return x / 2.0 ** e, e
    case("frexp", "matrix", [grid(3, 5) + 1 / 128], frexp, check=True)
    case("frexp", "special values", [f64([0.0, -0.0, 1, -1, 0.5, 3, 1e30, -1e-30, 8])], frexp)
    case("frexp", "0-dim", [grid() + 1 / 128], frexp)
    case("frexp", "empty", [grid(0, 2)], frexp)


def generate():
    unaries()
    activations()
    tests()
    binaries()
    parts()
