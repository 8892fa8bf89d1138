# spec/reference/gen_forms.py: forms of operators that internal rows serve, and what
# else scripts bring along.
import torch

from gen_elementwise import INF, INTS, NAN
from refdata import apart, case, f64, grid, integers


def between(x, lo, hi):
    """clamp to tensors; where they are equal the gradient goes to the lower one."""
    y = x if lo is None else torch.where((x < lo) | lo.isnan(), lo, x)
    return y if hi is None else torch.where((y > hi) | hi.isnan(), hi, y)


def clamps():
    x, lo = apart(3, 5), apart(3, 5) / 2 - 1 / 128
    for name, inputs in (
            ("tensors", [x, lo, lo + grid(3, 5, low=-0.5) - 1 / 256]),
            ("broadcast", [x, grid(5) - 1 / 128, grid(3, 1) + 1 / 256]),
            ("0-dim", [x, torch.tensor(-0.40625).double(), torch.tensor(0.53125).double()]),
            ("larger bounds", [grid(5) + 1 / 128, grid(3, 5), grid(3, 1) + 1 / 256])):
        assert torch.equal(between(*inputs), torch.clamp(*inputs))
        case("_clamp", name, inputs, between, check=True)
    case("_clamp", "lower", [x, lo, None], between, check=True)
    case("_clamp", "upper", [x, None, lo], between, check=True)
    case("_clamp", "special values",
         [f64([0, -INF, INF, NAN, 1, 1, 1]), f64([1, -1, -1, 0, NAN, 0, 2]),
          f64([2, 1, 1, 1, 2, NAN, -2])], torch.clamp)
    case("_clamp", "empty", [grid(0, 3), grid(3), grid(3)], torch.clamp)
    for dtype in INTS:
        low = 0 if dtype == torch.uint8 else -9
        case("_clamp", str(dtype)[6:], [integers(low, 9, 3, 5, dtype=dtype),
                                        integers(low, 3, 5, dtype=dtype),
                                        integers(2, 9, 5, dtype=dtype)], torch.clamp)


def rounded():
    for mode in ("trunc", "floor"):
        def fn(a, b, mode=mode):
            return torch.div(a, b, rounding_mode=mode)
        attrs = dict(rounding_mode=mode)
        b = grid(3, 5, low=0.5) * (grid(3, 5).sign() + 0.5).sign()
        case("_div", mode, [grid(3, 5, low=-20, high=20), b], fn, attrs=attrs)
        case("_div", mode + ", broadcast", [grid(3, 1, low=-20, high=20), b[0]], fn,
             attrs=attrs)
        case("_div", mode + ", number", [grid(3, 5, low=-20, high=20) + 1 / 128, 0.75],
             fn, attrs=attrs, check=True)
        for dtype in INTS:
            low = 0 if dtype == torch.uint8 else -50
            b = integers(1, 9, 5, dtype=dtype)
            if low < 0:
                b *= torch.tensor([1, -1, 1, -1, -1], dtype=dtype)
            case("_div", "%s, %s" % (mode, str(dtype)[6:]),
                 [integers(low, 50, 3, 5, dtype=dtype), b], fn, attrs=attrs)
    for decimals in (1, 2, 0, -1):
        case("_round", "%d decimals" % decimals, [grid(3, 5, low=-90, high=90)],
             lambda x: x.round(decimals=decimals), attrs=dict(decimals=decimals))
    case("_round", "smooth", [grid(3, 5) + 1 / 128], lambda x: x.round(decimals=1),
         attrs=dict(decimals=1), check=True)
    special = f64([0, -0.0, 1, INF, -INF, NAN, 1e38, -1e38])
    for decimals in (3, 400):  # 1e38 * 10^3 is beyond float32, 10^400 beyond float64
        case("_round", "special values, %d decimals" % decimals, [special], torch.clone,
             attrs=dict(decimals=decimals), grad=False)
    case("_round", "special values, -400 decimals", [f64([0, 1, 1e38, NAN])],
         lambda x: x * 0, attrs=dict(decimals=-400), grad=False)
    case("_round", "integers", [integers(-9, 9, 3)], torch.clone, attrs=dict(decimals=2))


def repeated():
    x = grid(3, 4)
    for name, counts, dim in (("rows", [2, 0, 3], 0), ("columns", [1, 0, 0, 2], 1),
                              ("one for all", [2], 1), ("none", [0, 0, 0], 0)):
        counts = torch.tensor(counts)
        case("_repeat_interleave", name, [x, counts],
             lambda x, n: x.repeat_interleave(n, dim), attrs=dict(dim=dim + 1),
             check=True)
    case("_repeat_interleave", "flat", [x, integers(0, 3, 12)],
         lambda x, n: x.repeat_interleave(n))
    case("_repeat_interleave", "0-dim count", [x, torch.tensor(2)],
         lambda x, n: x.repeat_interleave(n, 0), attrs=dict(dim=1))
    case("_repeat_interleave", "int32", [integers(0, 9, 3, dtype=torch.int32),
                                         integers(0, 3, 3, dtype=torch.int32)],
         lambda x, n: x.repeat_interleave(n))
    case("_repeat_interleave", "empty", [grid(0, 2), integers(0, 3, 0)],
         lambda x, n: x.repeat_interleave(n, 0), attrs=dict(dim=1))


def added():
    at = integers(0, 2, 4)
    case("_index_add", "rows", [grid(3, 5), at + 1, grid(4, 5)],
         lambda x, i, src: x.index_add(0, at, src, alpha=-0.5),
         attrs=dict(dim=1, alpha=-0.5), check=True)
    case("_index_add", "int32", [integers(-9, 9, 3, 5, dtype=torch.int32), at + 1,
                                 integers(-9, 9, 4, 5, dtype=torch.int32)],
         lambda x, i, src: x.index_add(0, at, src, alpha=3), attrs=dict(dim=1, alpha=3))


def products():
    a, b = grid(3, 5), grid(3, 5)
    case("vecdot", "rows", [a, b], torch.linalg.vecdot, check=True)
    case("vecdot", "columns", [a, b], lambda a, b: torch.linalg.vecdot(a, b, dim=0),
         attrs=dict(dim=1), check=True)
    case("vecdot", "broadcast", [grid(5), grid(2, 3, 5)], torch.linalg.vecdot)
    case("vecdot", "vectors", [grid(5), grid(5)], torch.linalg.vecdot)
    case("vecdot", "empty", [grid(2, 0), grid(2, 0)], torch.linalg.vecdot)
    case("vecdot", "int64", [integers(-9, 9, 3, 5), integers(-9, 9, 3, 5)],
         lambda a, b: (a * b).sum(-1))


def pairs():
    x = grid(5, 3) + 1 / 128
    for p in (2.0, 1.0, 3.0, INF):
        case("pdist", "p %g" % p, [x], lambda x: torch.pdist(x, p), attrs=dict(p=p),
             check=p in (2, 3))
    for rows in (0, 1):
        case("pdist", "%d rows" % rows, [grid(rows, 3)], torch.pdist, grad=False)
    case("pdist", "no columns", [grid(3, 0)], torch.pdist, grad=False)


def generate():
    clamps()
    rounded()
    repeated()
    added()
    products()
    pairs()
