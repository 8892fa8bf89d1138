# spec/reference/gen_sort.py: sorting and what stands on it, scans, statistics, and
# reading and writing at positions.
import torch

from gen_reduce import lua_dim
from refdata import apart, case, f64, grid, integers, random

INF, NAN = float("inf"), float("nan")
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def label(dim, shape):
    return "dim %d of %s" % (lua_dim(dim), "x".join(map(str, shape)))


def mask(*shape):
    return integers(0, 1, *shape).bool()


def from_one(pair):
    """Values and positions, which count from 1."""
    return pair[0], pair[1] + 1


SPECIAL = [[NAN, 1, -INF, 2], [0.0, -0.0, 0.0, -1], [INF, NAN, -NAN, INF], [2, 2, 1, 2]]


def sorts():
    stable = lambda x, d, down=False: from_one(
        torch.sort(x, dim=d, descending=down, stable=True))
    for shape, dim in [((3, 5), 0), ((3, 5), 1), ((2, 3, 4), -1), ((40,), 0), ((2, 37), 1)]:
        smooth = len(shape) == 2 and dim == 1
        for down in (False, True):
            case("sort", label(dim, shape) + (", falling" if down else ""),
                 [apart(*shape)], lambda x: stable(x, dim, down),
                 attrs=dict(dim=lua_dim(dim), descending=down), check=smooth)
            case("sort", "ties, %s%s" % (label(dim, shape), ", falling" if down else ""),
                 [integers(0, 3, *shape).double()], lambda x: stable(x, dim, down),
                 attrs=dict(dim=lua_dim(dim), descending=down))
    for down in (False, True):
        case("sort", "special values", [f64(SPECIAL)], lambda x: stable(x, 1, down),
             attrs=dict(descending=down))
    case("sort", "0-dim", [grid()], lambda x: from_one(torch.sort(x, stable=True, dim=0)))
    case("sort", "empty", [torch.zeros(3, 0, dtype=torch.float64)], lambda x: stable(x, 1))
    case("sort", "no lines", [torch.zeros(0, 3, dtype=torch.float64)],
         lambda x: stable(x, 1))
    for dtype in INTS:
        low = 0 if dtype == torch.uint8 else -100
        x = integers(low, 100, 3, 50, dtype=dtype)
        case("sort", str(dtype)[6:], [x], lambda t: stable(t, 1))
        case("sort", str(dtype)[6:] + ", falling", [x], lambda t: stable(t, 1, True),
             attrs=dict(descending=True))
    case("sort", "int64 extremes", [torch.tensor([2 ** 62, -2 ** 63, 0, 2 ** 63 - 1, -1])],
         lambda t: stable(t, 0))
    case("sort", "bool", [mask(3, 37)], lambda t: stable(t, 1))
    case("argsort", "ties", [integers(0, 5, 3, 7).double()],
         lambda x: stable(x, 1)[1], grad=False)
    case("argsort", "falling, dim 1", [apart(5, 3)], lambda x: stable(x, 0, True)[1],
         attrs=dict(dim=1, descending=True), grad=False)
    case("argsort", "int32", [integers(-9, 9, 2, 9, dtype=torch.int32)],
         lambda x: stable(x, 1)[1])
    case("msort", "matrix", [apart(5, 3)], lambda x: torch.msort(x), check=True)
    case("msort", "int64", [integers(-9, 9, 7, 2)], lambda x: torch.msort(x))


def first_k(x, k, dim, largest):
    """torch.topk says nothing of ties: the first ones, as a stable sort gives."""
    y, i = torch.sort(x, dim=dim, descending=largest, stable=True)
    n = k if x.dim() else None
    return (y.narrow(dim, 0, n), i.narrow(dim, 0, n) + 1) if x.dim() else (y, i + 1)


def picks():
    for shape, dim, k in [((3, 7), 1, 3), ((5, 3), 0, 1), ((2, 3, 4), 1, 2), ((9,), 0, 9),
                          ((2, 5), 1, 0), ((3, 3000), 1, 5)]:
        for largest in (True, False):
            if shape[-1] == 3000:
                x = integers(-200, 200, *shape).double()
            else:
                x = apart(*shape)
            case("topk", "%d, %s%s" % (k, label(dim, shape), "" if largest else ", least"),
                 [x], lambda t: first_k(t, k, dim, largest), check=shape == (3, 7),
                 attrs=dict(k=k, dim=lua_dim(dim), largest=largest),
                 grad=shape[-1] != 3000)
    case("topk", "ties", [integers(0, 3, 4, 20).double()],
         lambda t: first_k(t, 6, 1, True), attrs=dict(k=6))
    case("topk", "NaN is the largest", [f64(SPECIAL)], lambda t: first_k(t, 2, 1, True),
         attrs=dict(k=2))
    case("topk", "NaN is not the least", [f64(SPECIAL)], lambda t: first_k(t, 3, 1, False),
         attrs=dict(k=3, largest=False))
    case("topk", "0-dim", [grid()], lambda t: first_k(t, 1, 0, True), attrs=dict(k=1))
    for dtype in INTS:
        case("topk", str(dtype)[6:], [integers(0, 100, 3, 50, dtype=dtype)],
             lambda t: first_k(t, 7, 1, True), attrs=dict(k=7))
    kth = lambda x, k, d, keep: tuple(
        t.narrow(d, k - 1, 1) if keep else t.select(d, k - 1)
        for t in from_one(torch.sort(x, dim=d, stable=True)))
    for keep in (False, True):
        case("kthvalue", "the second%s" % (", kept" if keep else ""), [apart(3, 5)],
             lambda x: kth(x, 2, 1, keep), attrs=dict(k=2, keepdim=keep), check=True)
    case("kthvalue", "dim 1", [apart(5, 3)], lambda x: kth(x, 5, 0, False),
         attrs=dict(k=5, dim=1))
    case("kthvalue", "of many", [apart(2, 40)], lambda x: kth(x, 3, 1, False),
         attrs=dict(k=3))
    case("kthvalue", "int64", [integers(0, 9, 3, 9)], lambda x: kth(x, 4, 1, False),
         attrs=dict(k=4))


def medians():
    with_nan = f64([[1, NAN, 3, 2, 5], [NAN, NAN, NAN, NAN, NAN], [4, 1, 3, 5, 2]])
    for op, fn in dict(median=torch.median, nanmedian=torch.nanmedian).items():
        for shape, dim in [((3, 5), 1), ((4, 3), 0), ((2, 3, 4), -1)]:
            for keep in (False, True):
                case(op, label(dim, shape) + (", kept" if keep else ""), [apart(*shape)],
                     lambda x: from_one(fn(x, dim, keep)), check=len(shape) == 2,
                     attrs=dict(dim=lua_dim(dim), keepdim=keep))
        case(op, "of all, odd", [apart(3, 5)], lambda x: fn(x), check=True)
        case(op, "of all, even", [apart(4, 3)], lambda x: fn(x), check=True)
        case(op, "0-dim", [grid()], lambda x: fn(x))
        case(op, "int32", [apart(3, 5).mul(8).int()], lambda x: from_one(fn(x, 1)),
             attrs=dict(dim=2))
    case("median", "NaN", [with_nan], lambda x: from_one(torch.median(x, 1)),
         attrs=dict(dim=2))
    case("median", "NaN among all", [with_nan], lambda x: torch.median(x))
    case("nanmedian", "NaN", [with_nan[[0, 2]]], lambda x: from_one(torch.nanmedian(x, 1)),
         attrs=dict(dim=2))
    case("nanmedian", "NaN among all", [with_nan], lambda x: torch.nanmedian(x))

    def mode(x, dim, keep):
        y, _ = torch.mode(x, dim, True)
        n = x.shape[dim]
        place = torch.arange(1, n + 1).reshape([n if d == dim % x.dim() else 1
                                                for d in range(x.dim())])
        at = torch.where(x == y, place, 0).amax(dim, True)
        y = x.gather(dim, at - 1)
        return (y, at) if keep else (y.squeeze(dim), at.squeeze(dim))

    case("mode", "ties", [integers(0, 3, 4, 9).double()], lambda x: mode(x, 1, False))
    case("mode", "dim 1, kept", [integers(0, 2, 7, 3).double()],
         lambda x: mode(x, 0, True), attrs=dict(dim=1, keepdim=True))
    case("mode", "all differ", [apart(3, 5)], lambda x: mode(x, 1, False), check=True)
    case("mode", "int64", [integers(0, 3, 3, 8)], lambda x: mode(x, 1, False))


def quantiles():
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        case("quantile", how, [apart(3, 5), f64([0, 0.25, 0.375, 0.9375, 1])],
             lambda x, q: torch.quantile(x, q.detach(), 1, interpolation=how),
             attrs=dict(dim=2, interpolation=how), grad=False)
        case("quantile", "one share, " + how, [apart(4, 3), 0.375],
             lambda x, q: torch.quantile(x, q, 0, interpolation=how), check=True,
             attrs=dict(dim=1, interpolation=how))
    for op, fn in dict(quantile=torch.quantile, nanquantile=torch.nanquantile).items():
        case(op, "of all", [apart(3, 5), 0.625], lambda x, q: fn(x, q), check=True)
        case(op, "of all, kept", [apart(3, 5), 0.625], lambda x, q: fn(x, q, None, True),
             attrs=dict(keepdim=True))
        case(op, "vector of all", [apart(3, 5), f64([0.125, 0.75])],
             lambda x, q: fn(x, q.detach()), grad=False)
        case(op, "middle dim, kept", [apart(2, 3, 4), f64([0.125, 0.75])],
             lambda x, q: fn(x, q.detach(), 1, True), attrs=dict(dim=2, keepdim=True),
             grad=False)
        case(op, "middle dim, one share", [apart(2, 3, 4), 0.5],
             lambda x, q: fn(x, q, 1, True), attrs=dict(dim=2, keepdim=True), check=True)
    nan = f64([[1, NAN, 3, 2, 5], [NAN, NAN, NAN, NAN, NAN], [4, 1, 3, 5, 2]])
    case("quantile", "NaN", [nan, 0.5], lambda x, q: torch.quantile(x, q, 1),
         attrs=dict(dim=2), grad=False)
    case("nanquantile", "NaN", [nan, 0.5], lambda x, q: torch.nanquantile(x, q, 1),
         attrs=dict(dim=2), grad=False)


def uniques():
    def values(x, dim=None):
        """torch.unique, with a gradient to the first of equal ones."""
        if dim is None:
            y = torch.sort(x.reshape(-1), stable=True)[0]
            keep = torch.cat([torch.tensor([True]), y[1:] != y[:-1]])
            return y[keep]
        return torch.unique(x, dim=dim)

    def consecutive(x):
        y = x.reshape(-1)
        return y[torch.cat([torch.tensor([True]), y[1:] != y[:-1]])]

    case("unique", "all differ", [apart(3, 5)], values, check=True)
    case("unique", "ties", [integers(0, 6, 4, 9).double()], values)

    def all_three(f, **more):
        def fn(x):
            y, inverse, counts = f(x, return_inverse=True, return_counts=True, **more)
            return y, inverse + 1, counts
        return fn
    both = dict(return_inverse=True, return_counts=True)
    case("unique", "int64, all results", [integers(-5, 5, 4, 9)], all_three(torch.unique),
         attrs=both)
    case("unique", "counts alone", [integers(-5, 5, 4, 9)],
         lambda x: torch.unique(x, return_counts=True), attrs=dict(return_counts=True))
    case("unique", "rows", [integers(0, 1, 9, 3)], all_three(torch.unique, dim=0),
         attrs=dict(dim=1, **both))
    case("unique", "columns of three dims", [integers(0, 1, 2, 9, 2)],
         all_three(torch.unique, dim=1), attrs=dict(dim=2, **both))
    case("unique", "bool", [mask(3, 4)], all_three(torch.unique), attrs=both)
    case("unique", "empty", [torch.zeros(0, dtype=torch.int64)], torch.unique)
    once = torch.unique_consecutive
    case("unique_consecutive", "all differ", [apart(3, 5)], consecutive, check=True)
    case("unique_consecutive", "ties", [integers(0, 2, 30).double()], consecutive)
    case("unique_consecutive", "int64, all results", [integers(0, 2, 4, 9)],
         all_three(once), attrs=both)
    case("unique_consecutive", "rows", [integers(0, 1, 9, 1)], all_three(once, dim=0),
         attrs=dict(dim=1, **both))


def searches():
    vector = torch.sort(apart(9))[0]
    table = torch.sort(apart(3, 7), 1)[0]
    for right in (False, True):
        attrs = dict(right=True) if right else {}
        name = ", right" if right else ""
        hits = vector[integers(0, 8, 2, 3)]
        case("searchsorted", "vector" + name, [vector, torch.cat([hits, grid(2, 4)], 1)],
             lambda s, x: torch.searchsorted(s, x, right=right) + 1, attrs=attrs, grad=False)
        case("searchsorted", "lines" + name, [table, grid(3, 4)],
             lambda s, x: torch.searchsorted(s, x, right=right) + 1, attrs=attrs, grad=False)
        case("searchsorted", "int64" + name,
             [torch.tensor([1, 3, 3, 3, 8]), torch.tensor([0, 1, 2, 3, 8, 9])],
             lambda s, x: torch.searchsorted(s, x, right=right) + 1, attrs=attrs)
        case("bucketize", "matrix" + name, [torch.cat([hits, grid(2, 4)], 1), vector],
             lambda x, s: torch.bucketize(x, s, right=right) + 1, attrs=attrs, grad=False)
        case("bucketize", "int32" + name,
             [integers(0, 9, 3, 4, dtype=torch.int32),
              torch.tensor([1, 3, 3, 7], dtype=torch.int32)],
             lambda x, s: torch.bucketize(x, s, right=right) + 1, attrs=attrs)
    case("searchsorted", "0-dim", [vector, grid()],
         lambda s, x: torch.searchsorted(s, x) + 1, grad=False)
    case("isin", "int64", [integers(0, 9, 4, 5), torch.tensor([2, 3, 7])], torch.isin)
    case("isin", "inverted", [integers(0, 9, 4, 5), torch.tensor([[2, 3], [7, 0]])],
         lambda x, v: torch.isin(x, v, invert=True), attrs=dict(invert=True))
    case("isin", "floats", [integers(0, 9, 4, 5).double(), f64([1, 2.5, 9, 4])],
         torch.isin, grad=False)
    case("isin", "nothing", [grid(3), torch.zeros(0, dtype=torch.float64)], torch.isin,
         grad=False)
    # labels count from 1 here
    case("bincount", "plain", [integers(1, 6, 20)], lambda x: torch.bincount(x - 1))
    case("bincount", "longer", [integers(1, 4, 9, dtype=torch.int32)],
         lambda x: torch.bincount(x - 1, minlength=7), attrs=dict(minlength=7))
    case("bincount", "weights", [integers(1, 5, 12), grid(12)],
         lambda x, w: torch.zeros(int(x.max()), dtype=torch.float64).index_add(0, x - 1, w),
         check=True)
    case("bincount", "empty", [torch.zeros(0, dtype=torch.int64)],
         lambda x: torch.bincount(x, minlength=2), attrs=dict(minlength=2))
    case("histc", "a range", [grid(40) + 1 / 128],
         lambda x: torch.histc(x, 6, -2, 2.5), attrs=dict(bins=6, min=-2, max=2.5),
         grad=False)
    case("histc", "its own range", [torch.arange(17, dtype=torch.float64)],
         lambda x: torch.histc(x, 8), attrs=dict(bins=8), grad=False)
    case("histc", "one value", [torch.full((4,), 3.0, dtype=torch.float64)],
         lambda x: torch.histc(x, 4), attrs=dict(bins=4), grad=False)


def scans():
    smooth = lambda *s: apart(*s) / 2 + 1 / 16
    for shape, dim in [((3, 5), 0), ((3, 5), 1), ((2, 3, 4), 1), ((9, 12), 0), ((300,), 0)]:
        d, small = dict(dim=lua_dim(dim)), len(shape) == 3 or shape == (3, 5)
        name = label(dim, shape)
        near_one = grid(*shape, low=-1.25, high=1.25, step=1 / 32) + 1 / 64
        case("cumprod", name, [near_one if len(shape) > 1 else near_one.sign()],
             lambda x: torch.cumprod(x, dim), attrs=d, check=small)
        case("logcumsumexp", name, [grid(*shape)], lambda x: torch.logcumsumexp(x, dim),
             attrs=d, check=small)
        for op, fn in dict(cummax=torch.cummax, cummin=torch.cummin).items():
            case(op, name, [apart(*shape)], lambda x: from_one(fn(x, dim)), attrs=d,
                 check=small)
            case(op, "ties, " + name, [integers(0, 2, *shape).double()],
                 lambda x: from_one(fn(x, dim)), attrs=d)
    zeros = f64([[1.5, 0, 2, 3, 0.5], [2, 0, 3, 0, 4], [0, 0, 1, 2, 3]])
    case("cumprod", "zeros", [zeros], lambda x: torch.cumprod(x, 1), attrs=dict(dim=2),
         check=True)
    for op, fn in dict(cumprod=lambda x, d: torch.cumprod(x, d),
                       logcumsumexp=lambda x, d: torch.logcumsumexp(x, d),
                       cummax=lambda x, d: from_one(torch.cummax(x, d)),
                       cummin=lambda x, d: from_one(torch.cummin(x, d))).items():
        case(op, "empty", [torch.zeros(2, 0, dtype=torch.float64)], lambda x: fn(x, 1),
             attrs=dict(dim=2), grad=False)
        case(op, "0-dim", [grid()], lambda x: fn(x, 0), attrs=dict(dim=1))
        case(op, "NaN goes on", [f64([1, NAN, 3, NAN, 2])], lambda x: fn(x, 0),
             attrs=dict(dim=1), grad=False)
    case("logcumsumexp", "large and infinite", [f64([
        [10000, 10000, 9999], [-10000, -10001, -10000], [-INF, -INF, 0], [1, -INF, 2]])],
        lambda x: torch.logcumsumexp(x, 1), attrs=dict(dim=2))
    for dtype in [torch.int64, torch.int32, torch.uint8]:
        x = integers(0, 5, 3, 5, dtype=dtype)
        case("cumprod", str(dtype)[6:], [x], lambda t: t.cumprod(1), attrs=dict(dim=2))
        case("cummax", str(dtype)[6:], [x], lambda t: from_one(t.cummax(1)),
             attrs=dict(dim=2))
        case("cummin", str(dtype)[6:], [x], lambda t: from_one(t.cummin(0)),
             attrs=dict(dim=1))
    case("cummax", "bool", [mask(3, 5)],
         lambda t: (t.int().cummax(1)[0].bool(), t.int().cummax(1)[1] + 1),
         attrs=dict(dim=2))


def scatters():
    one = integers(1, 4, 3, 6)
    distinct = torch.tensor([[3, 1, 4, 2], [2, 4, 1, 5]])

    def last_wins(x, i, s, dim):
        y = x.clone()
        return y.scatter(dim, i - 1, s[:i.shape[0], :i.shape[1]] if torch.is_tensor(s) else s)

    case("scatter", "dim 2", [grid(2, 5), distinct, grid(2, 4)],
         lambda x, i, s: last_wins(x, i, s, 1), attrs=dict(dim=2), check=True, exact=True)
    case("scatter", "dim 1, a larger src", [grid(5, 2), distinct.t().contiguous(),
                                            grid(5, 3)],
         lambda x, i, s: last_wins(x, i, s, 0), attrs=dict(dim=1), check=True, exact=True)
    case("scatter", "a number", [grid(2, 5), distinct, 2.5],
         lambda x, i, s: last_wins(x, i, s, 1), attrs=dict(dim=2), check=True, exact=True)
    case("scatter", "from the end", [grid(5), torch.tensor([-1, 1, -3]), grid(3)],
         lambda x, i, s: x.scatter(0, torch.where(i < 0, i + 5, i - 1), s),
         attrs=dict(dim=1), exact=True)
    case("scatter", "bool", [mask(2, 5), distinct, mask(2, 4)],
         lambda x, i, s: x.scatter(1, i - 1, s), attrs=dict(dim=2))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            attrs = dict(dim=2, reduce=how, include_self=own)
            name = how + ("" if own else ", without self")

            def fn(x, i, s, dim=1):
                s = s[:i.shape[0], :i.shape[1]]
                return x.scatter_reduce(dim, i - 1, s, how, include_self=own)
            case("scatter_reduce", name, [apart(3, 4) + 1 / 32, one, apart(3, 6)], fn,
                 attrs=attrs, check=True)
            case("scatter_reduce", name + ", dim 1",
                 [apart(4, 3) + 1 / 32, one.t().contiguous()[:, :2], apart(7, 3)],
                 lambda x, i, s: fn(x, i, s, 0), attrs=dict(attrs, dim=1))
            case("scatter_reduce", name + ", int32",
                 [integers(-9, 9, 3, 4, dtype=torch.int32), one,
                  integers(-9, 9, 3, 6, dtype=torch.int32)], fn, attrs=attrs)
    # PyTorch 1.13 shares amax among src alone where x is as large
    case("scatter_reduce", "prod with zeros",
         [f64([[2, 0, 3, 0]]), torch.tensor([[1, 1, 2, 3, 3, 4]]), f64([[0, 3, 4, 0, 0, 5]])],
         lambda x, i, s: x.scatter_reduce(1, i - 1, s, "prod"),
         attrs=dict(dim=2, reduce="prod"))


def positions():
    where = torch.tensor([[3, -1, 7], [1, 15, 3]])
    flat = lambda i, n: torch.where(i < 0, i + n, i - 1)
    case("take", "a matrix of positions", [grid(3, 5), where],
         lambda x, i: x.take(flat(i, 15)), check=True, exact=True)
    case("take", "int64", [integers(0, 99, 3, 5), where],
         lambda x, i: x.take(flat(i, 15)), exact=True)
    case("take_along_dim", "broadcast index", [grid(3, 5), torch.tensor([[2, 5, 1]])],
         lambda x, i: torch.take_along_dim(x, i - 1, 1), attrs=dict(dim=2), check=True,
         exact=True)
    case("take_along_dim", "broadcast x", [grid(1, 5), integers(1, 5, 3, 2)],
         lambda x, i: torch.take_along_dim(x, i - 1, 1), attrs=dict(dim=2), check=True,
         exact=True)
    case("take_along_dim", "flat", [grid(3, 5), torch.tensor([3, 15, 1])],
         lambda x, i: torch.take_along_dim(x, i - 1), exact=True)
    once = torch.tensor([[3, -1, 7], [1, 10, 4]])
    case("put", "replaced", [grid(3, 5), once, grid(2, 3)],
         lambda x, i, s: x.put(flat(i, 15), s), check=True, exact=True)
    case("put", "added", [grid(3, 5), where, grid(2, 3)],
         lambda x, i, s: x.put(flat(i, 15), s, True), attrs=dict(accumulate=True), check=True)
    case("put", "a number", [grid(3, 5), once, 2.5],
         lambda x, i, s: x.put(flat(i, 15), torch.full((2, 3), s, dtype=torch.float64)),
         exact=True)
    case("put", "int32", [integers(0, 9, 3, 5, dtype=torch.int32), once,
                          integers(10, 19, 2, 3, dtype=torch.int32)],
         lambda x, i, s: x.put(flat(i, 15), s), exact=True)
    case("index_fill", "columns", [grid(3, 5), torch.tensor([2, -1]), 2.5],
         lambda x, i, v: x.index_fill(1, flat(i, 5), v), attrs=dict(dim=2), check=True,
         exact=True)
    case("index_fill", "rows, a tensor", [grid(3, 5), torch.tensor([2, 2]), grid()],
         lambda x, i, v: x.index_fill(0, i - 1, v), attrs=dict(dim=1), exact=True,
         grad=False)
    case("index_fill", "int64", [integers(0, 9, 3, 5), torch.tensor([1, 3]), 7],
         lambda x, i, v: x.index_fill(1, i - 1, v), attrs=dict(dim=2), exact=True)

    def spread(x, m, s):
        y = torch.broadcast_to(x, torch.broadcast_shapes(x.shape, m.shape))
        return y.masked_scatter(m, s)
    case("masked_scatter", "matrix", [grid(3, 5), mask(3, 5), grid(20)], spread,
         check=True, exact=True)
    case("masked_scatter", "mask broadcast", [grid(3, 4), mask(4), grid(4, 4)],
         lambda x, m, s: x.masked_scatter(m.expand(3, 4), s), exact=True)
    case("masked_scatter", "nothing", [grid(3), torch.tensor([False] * 3),
                                       torch.zeros(0, dtype=torch.float64)], spread,
         exact=True, grad=False)
    case("masked_scatter", "int64", [integers(0, 9, 3, 5), mask(3, 5), integers(0, 9, 15)],
         spread, exact=True)
    case("argwhere", "matrix", [mask(3, 5).double()], lambda x: torch.argwhere(x) + 1,
         grad=False)
    case("argwhere", "int64", [integers(0, 1, 2, 3, 2)], lambda x: torch.argwhere(x) + 1)


def statistics():
    def amin_amax(x, dim=None, keep=False):
        if dim is None:
            return x.amin(), x.amax()
        return x.amin(dim, keep), x.amax(dim, keep)
    case("aminmax", "all", [apart(3, 5)], amin_amax, check=True)
    case("aminmax", "dim 1", [apart(3, 5)], lambda x: amin_amax(x, 0), attrs=dict(dim=1))
    case("aminmax", "dim 2, kept, int32", [integers(-9, 9, 3, 5, dtype=torch.int32)],
         lambda x: amin_amax(x, 1, True), attrs=dict(dim=2, keepdim=True))
    for op, fn in dict(std_mean=torch.std_mean, var_mean=torch.var_mean).items():
        case(op, "all", [grid(3, 5)], lambda x: fn(x, dim=(0, 1)), check=True)
        case(op, "dim 2, kept", [grid(3, 5)],
             lambda x: fn(x, dim=1, unbiased=False, keepdim=True),
             attrs=dict(dim=2, correction=0, keepdim=True), check=True)
        case(op, "two dims", [grid(2, 3, 4)], lambda x: fn(x, dim=(0, 2)),
             attrs=dict(dim=[1, 3]))
    nan = f64([[1, NAN, 3], [NAN, NAN, NAN], [4, 1, 3]])
    for op, fn in dict(nansum=torch.nansum, nanmean=torch.nanmean).items():
        case(op, "smooth", [grid(3, 5)], lambda x: fn(x), check=True)
        case(op, "dim 2, kept", [grid(3, 5)], lambda x: fn(x, 1, True),
             attrs=dict(dim=2, keepdim=True), check=True)
        case(op, "NaN", [nan], lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "NaN among all", [nan], lambda x: fn(x))
    case("nansum", "int32", [integers(0, 9, 3, 5, dtype=torch.int32)],
         lambda x: x.sum(1), attrs=dict(dim=2))
    case("diff", "neighbours", [grid(3, 5)], lambda x: torch.diff(x), check=True)
    case("diff", "twice along dim 1", [grid(5, 3)], lambda x: torch.diff(x, n=2, dim=0),
         attrs=dict(n=2, dim=1), check=True)
    case("diff", "joined", [grid(3, 4), grid(3, 1), grid(3, 2)],
         lambda x, a, b: torch.diff(x, prepend=a, append=b), check=True)
    case("diff", "nothing left", [grid(3, 1)], lambda x: torch.diff(x))
    case("diff", "int64", [integers(0, 99, 7)], lambda x: torch.diff(x))
    case("diff", "bool", [mask(3, 7)], lambda x: torch.diff(x))
    for op, fn in dict(trapezoid=torch.trapezoid,
                       cumulative_trapezoid=torch.cumulative_trapezoid).items():
        case(op, "steps of 1", [grid(3, 5)], lambda y: fn(y), check=True)
        case(op, "steps of a half, dim 1", [grid(5, 3)], lambda y: fn(y, dx=0.5, dim=0),
             attrs=dict(dx=0.5, dim=1), check=True)
        case(op, "points", [grid(3, 5), torch.sort(apart(5))[0]],
             lambda y, x: fn(y, x), check=True)
        case(op, "points of each line", [grid(3, 5), torch.sort(apart(3, 5), 1)[0]],
             lambda y, x: fn(y, x), check=True)
        case(op, "one point", [grid(3, 1)], lambda y: fn(y))
    x = grid(3, 7)
    case("cov", "three variables", [x], lambda t: torch.cov(t), check=True)
    case("cov", "one variable", [grid(7)], lambda t: torch.cov(t), check=True)
    case("cov", "no correction", [x], lambda t: torch.cov(t, correction=0),
         attrs=dict(correction=0))
    f, a = integers(1, 3, 7), grid(7, low=0.5, high=2)
    case("cov", "weights", [x, f, a],
         lambda t, u, v: torch.cov(t, fweights=u, aweights=v.detach()), grad=False)
    case("cov", "repeats", [x, f], lambda t, u: torch.cov(t, fweights=u), check=True)
    case("corrcoef", "three variables", [x], lambda t: torch.corrcoef(t), check=True)
    case("corrcoef", "one variable", [grid(7)], lambda t: torch.corrcoef(t), grad=False)


def generate():
    random.seed(20240301)  # whatever the parts before have drawn
    sorts()
    picks()
    medians()
    quantiles()
    uniques()
    searches()
    scans()
    scatters()
    positions()
    statistics()
