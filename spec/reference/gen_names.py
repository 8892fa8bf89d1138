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


def generate():
    bounds()
