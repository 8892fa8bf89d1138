# spec/reference/gen_names.py: what has a name of its own, though others could say it.
import torch
import torch.nn.functional as F

from gen_elementwise import INF, INTS, NAN, unary
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


def distances():
    a, b = grid(3, 5) + 1 / 128, grid(3, 5)
    for p in (2.0, 1.0, 3.0, INF):
        attrs = dict(p=p)
        case("dist", "p %g" % p, [a, b], lambda a, b: torch.dist(a, b, p), attrs=attrs,
             check=True)
        case("cdist", "p %g" % p, [a, grid(4, 5)], lambda a, b: torch.cdist(a, b, p),
             attrs=attrs, check=p != INF)
        case("pairwise_distance", "p %g" % p, [a, b],
             lambda a, b: F.pairwise_distance(a, b, p), attrs=attrs, check=True)
    case("dist", "broadcast", [a, grid(5)], torch.dist, check=True)
    case("dist", "0-dim", [grid(), grid() + 1 / 128], torch.dist, check=True)
    case("dist", "empty", [grid(0, 3), grid(0, 3)], torch.dist)
    case("dist", "the same", [a, a.clone()], torch.dist)
    case("cdist", "batches", [grid(2, 3, 4), grid(2, 5, 4) + 1 / 128], torch.cdist,
         check=True)
    case("cdist", "broadcast", [grid(2, 1, 3, 4), grid(3, 5, 4) + 1 / 128], torch.cdist)
    case("cdist", "the same", [a, a.clone()], torch.cdist)
    case("cdist", "empty", [grid(0, 3), grid(2, 3)], torch.cdist)
    case("cdist", "no columns", [grid(2, 0), grid(3, 0)], torch.cdist)
    case("pairwise_distance", "keepdim", [grid(2, 3, 4), grid(4)],
         lambda a, b: F.pairwise_distance(a, b, keepdim=True), attrs=dict(keepdim=True),
         check=True)
    x = grid(3, 4, 2)
    for p, dim, most in ((2.0, 1, 4.0), (1.0, 2, 10.0), (2.0, 3, 1.0), (INF, 1, 2.5)):
        case("renorm", "p %g, dim %d" % (p, dim), [x],
             lambda x: torch.renorm(x, p, dim - 1, most),
             attrs=dict(p=p, dim=dim, most=most), check=p != INF)
    case("renorm", "to nothing", [x], lambda x: torch.renorm(x, 2, 0, 0),
         attrs=dict(p=2.0, dim=1, most=0.0))
    case("renorm", "zeros", [torch.zeros(2, 3).double()],
         lambda x: torch.renorm(x, 2, 0, 1), attrs=dict(p=2.0, dim=1, most=1.0))


def vander(x, n=None, increasing=False):
    """torch.vander has no gradient."""
    y = x[:, None] ** torch.arange(len(x) if n is None else n)
    y = y if increasing else y.flip(1)
    assert torch.equal(y, torch.vander(x.detach(), n, increasing))
    return y


def matrices():
    case("diagflat", "vector", [grid(3)], torch.diagflat, check=True)
    case("diagflat", "matrix, above", [grid(2, 3)], lambda x: torch.diagflat(x, 1),
         attrs=dict(offset=1), check=True)
    case("diagflat", "below", [grid(2)], lambda x: torch.diagflat(x, -2),
         attrs=dict(offset=-2), check=True)
    case("diagflat", "0-dim", [grid()], torch.diagflat, check=True)
    case("diagflat", "empty", [grid(0)], torch.diagflat)
    case("diagflat", "int32", [integers(-9, 9, 2, 2, dtype=torch.int32)], torch.diagflat)
    x = grid(3, 4, 4) + 4 * torch.eye(4).double()
    x[1] *= -1  # of 4 rows: the sign stays
    x[2, 0] *= -1
    case("logdet", "one", [x[0].clone()], torch.logdet, check=True)
    case("logdet", "batch", [x], torch.logdet)
    case("logdet", "zeros", [torch.zeros(2, 2).double()], torch.logdet, grad=False)
    for increasing in (False, True):
        case("vander", "increasing %s" % increasing, [grid(4) + 1 / 128],
             lambda x: vander(x, increasing=increasing),
             attrs=dict(increasing=increasing), check=True)
    case("vander", "more columns", [grid(2) + 1 / 128], lambda x: vander(x, 5),
         attrs=dict(n=5), check=True)
    case("vander", "no columns", [grid(2)], lambda x: vander(x, 0), attrs=dict(n=0))
    case("vander", "empty", [grid(0)], lambda x: vander(x, 2), attrs=dict(n=2))
    case("vander", "int64", [integers(-3, 3, 4)], vander)


def shares():
    unary("ndtr", torch.special.ndtr)
    case("ndtr", "far below", [f64([-5, -8, -12, 5, 8])], torch.special.ndtr)
    unary("entr", torch.special.entr, low=0.125, high=3.0, special=False)
    case("entr", "special values", [f64([0.0, -0.0, 1, -1, INF, -INF, NAN])],
         torch.special.entr, grad=False)


def medians():
    for name in ("median", "nanmedian"):
        fn = getattr(torch, name)
        case(name, "of nothing", [grid(0)], fn, grad=False)
        case(name, "of no rows", [grid(0, 3)], fn, grad=False)


def generate():
    bounds()
    bools()
    distances()
    matrices()
    shares()
    medians()
