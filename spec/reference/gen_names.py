# spec/reference/gen_names.py: what has a name of its own, though others could say it.
import torch

from gen_elementwise import INF, INTS, NAN
from refdata import case, f64, grid, integers


def bounds():
    x = grid(3, 5) + 1 / 128
    for name in ("clamp_min", "clamp_max"):
        fn = getattr(torch, name)
        case(name, "number", [x, 0.5], fn, check=True)
        case(name, "tensor", [x, grid(3, 5)], fn, check=True)
        case(name, "broadcast", [x, grid(5)], fn, check=True)
        case(name, "column", [grid(3, 1) + 1 / 128, grid(4)], fn, check=True)
        case(name, "0-dim", [grid() + 1 / 128, grid()], fn, check=True)
        case(name, "empty", [grid(0, 3), grid(3)], fn)
        special = f64([0.0, -0.0, 1, -INF, INF, NAN, 2, NAN])
        case(name, "special values, number", [special, 1], fn)
        case(name, "special values, tensor",
             [special, f64([-0.0, 0.0, 1, INF, -INF, 1, NAN, NAN])], fn)
        for dtype in INTS:
            low = 0 if dtype == torch.uint8 else -9
            case(name, str(dtype)[6:], [integers(low, 9, 3, 5, dtype=dtype),
                                        integers(low, 9, 5, dtype=dtype)], fn)


def truths(*shape):
    return integers(0, 1, *shape, dtype=torch.bool)


def bools():
    """What no kernel takes bool for."""
    x, y = truths(3, 5), truths(3, 5)
    for name in ("fmax", "fmin", "heaviside"):
        case(name, "bool", [x, y], getattr(torch, name))
        case(name, "bool, broadcast", [x, truths(5)], getattr(torch, name))
    case("sign", "bool", [x], torch.sign)
    case("square", "bool", [x], torch.square)
    case("clamp", "bool", [x], lambda x: x.clamp(0, 1), attrs=dict(lo=0, hi=1))
    case("clamp_min", "bool, number", [x, 1], torch.clamp_min)
    for name in ("clamp_min", "clamp_max"):
        case(name, "bool", [x, truths(5)], getattr(torch, name))
    at = integers(0, 2, 4, 5)
    case("scatter_add", "bool", [x, at + 1, truths(4, 5)],
         lambda x, i, src: x.scatter_add(0, at, src), attrs=dict(dim=1))
    case("scatter_reduce", "sum of bool", [x, at + 1, truths(4, 5)],
         lambda x, i, src: x.scatter_reduce(0, at, src, "sum"),
         attrs=dict(dim=1, reduce="sum"))
    # as many as an uint8 counts to 0
    at = torch.zeros(256, dtype=torch.int64)
    src = torch.ones(256, 2, dtype=torch.bool)
    case("index_add", "bool", [truths(3, 2), at + 1, src],
         lambda x, i, src: x.index_add(0, at, src), attrs=dict(dim=1))


def generate():
    bounds()
    bools()
