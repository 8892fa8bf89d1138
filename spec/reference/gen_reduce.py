# spec/reference/gen_reduce.py: reductions over all, one and several dims, and cumsum.
import itertools

import torch

from refdata import apart, case, f64, grid, integers

INF, NAN = float("inf"), float("nan")
INTS = [torch.int64, torch.int32, torch.uint8]


def lua_dim(dim):
    """0-based to 1-based; negative dims are the same in both."""
    if isinstance(dim, (list, tuple)):
        return [lua_dim(d) for d in dim]
    return dim + 1 if dim >= 0 else dim


def over_dims(op, make, fn, sets, check=True, grad=True, attrs=None):
    """fn(x, dims, keepdim); dims is None for all."""
    for shape, dim in sets:
        for keepdim in (False, True):
            a = dict(attrs or {})
            if dim is not None:
                a["dim"] = lua_dim(dim)
            if keepdim:
                a["keepdim"] = True
            label = "all" if dim is None else "dim %s" % str(a["dim"]).strip("[]")
            name = "%s of %s%s" % (label, "x".join(map(str, shape)) or "0-dim",
                                   ", kept" if keepdim else "")
            small = 1
            for s in shape:
                small *= s
            case(op, name, [make(*shape)],
                 lambda x, d=dim, k=keepdim: fn(x, d, k), attrs=a,
                 check=check and 0 < small <= 24, grad=grad)


ONE = [((3, 5), 0), ((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((7, 37), 1),
       ((37, 7), 0), ((2, 1, 3), 1)]
MANY = [((2, 3, 4), (0, 2)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (0, 1, 2)),
        ((2, 3, 2, 3), (-1, 1))]
ALL = [((3, 5), None), ((2, 3, 4), None), ((131,), None), ((), None)]


def all_dims(x, dims):
    return list(range(x.dim())) if dims is None else (
        list(dims) if isinstance(dims, (list, tuple)) else [dims])


def full_keep(x, y, keepdim):
    return y.reshape([1] * x.dim()) if keepdim else y


def t_sum(x, d, k):
    return torch.sum(x, all_dims(x, d), k) if x.dim() else x.sum()


def t_mean(x, d, k):
    return torch.mean(x, all_dims(x, d), k) if x.dim() else x.mean()


def t_prod(x, d, k):
    for i in sorted((j % max(x.dim(), 1) for j in all_dims(x, d)), reverse=True):
        x = torch.prod(x, i, k)
    return x


def t_amax(x, d, k):
    return torch.amax(x, all_dims(x, d), k)


def t_amin(x, d, k):
    return torch.amin(x, all_dims(x, d), k)


def t_any(x, d, k):
    x = x != 0
    for i in sorted((j % max(x.dim(), 1) for j in all_dims(x, d)), reverse=True):
        x = torch.any(x, i, k)
    return x


def t_all(x, d, k):
    return ~t_any(x == 0, d, k)


def t_logsumexp(x, d, k):
    return torch.logsumexp(x, all_dims(x, d), k) if x.dim() else torch.logsumexp(x, 0)


def t_var(correction):
    def fn(x, d, k):
        return torch.var(x, all_dims(x, d), correction=correction, keepdim=k)
    return fn


def t_std(correction):
    def fn(x, d, k):
        return torch.std(x, all_dims(x, d), correction=correction, keepdim=k)
    return fn


def t_norm(p):
    def fn(x, d, k):
        return torch.linalg.vector_norm(x, p, all_dims(x, d) if d is not None else None, k)
    return fn


def t_arg(which):
    def fn(x, d, k):
        y = which(x, d, k) if d is not None else full_keep(x, which(x), k)
        return y + 1
    return fn


def generate():
    shift = lambda *s: grid(*s) + 1 / 128
    for op, fn in dict(sum=t_sum, mean=t_mean, logsumexp=t_logsumexp).items():
        over_dims(op, grid, fn, ALL + ONE + MANY)
    over_dims("prod", lambda *s: grid(*s, low=0.5, high=1.5), t_prod,
              [c for c in ALL + ONE + MANY])
    for op, fn in dict(amax=t_amax, amin=t_amin).items():
        over_dims(op, apart, fn, ALL + ONE + MANY)
        case(op, "ties share the gradient", [f64([[1, 3, 3], [2, 2, 2]])],
             lambda x: fn(x, 1, False), attrs=dict(dim=2))
        case(op, "ties over everything", [f64([[1, 3, 3], [1, 2, 1]])],
             lambda x: fn(x, None, False))
        case(op, "NaN passes", [f64([[1, NAN, 3], [INF, -INF, 2]])],
             lambda x: fn(x, 1, False), attrs=dict(dim=2))
    for op in ("max", "min"):
        which = getattr(torch, op)
        over_dims(op, apart, lambda x, d, k: full_keep(x, which(x), k), ALL)
        def pair(x, d, k, which=which):
            r = which(x, d, k)
            return r[0], r[1] + 1
        over_dims(op, apart, pair, ONE)
        case(op, "ties over everything share", [f64([[1, 3, 3], [1, 2, 1]])], which)
        case(op, "the first of ties", [f64([[1, 3, 3], [2, 2, 2], [3, 3, 1]])],
             lambda x: pair(x, 1, False), attrs=dict(dim=2))
        case(op, "NaN passes", [f64([[1, NAN, 3], [INF, -INF, 2]])],
             lambda x: pair(x, 1, False), attrs=dict(dim=2))
    for op in ("argmax", "argmin"):
        which = getattr(torch, op)
        over_dims(op, apart, t_arg(which), ALL + ONE, grad=False, check=False)
        case(op, "NaN counts as the extreme", [f64([[1, NAN, 3], [INF, -INF, 2]])],
             lambda x: t_arg(which)(x, 1, False), attrs=dict(dim=2), grad=False)
        case(op, "the first of ties", [f64([[1, 3, 3], [2, 2, 2], [3, 3, 1]])],
             lambda x: t_arg(which)(x, 1, False), attrs=dict(dim=2), grad=False)
    count = lambda x, d, k: t_sum((x != 0).long(), d, k)
    for make in (lambda *s: integers(0, 2, *s), lambda *s: grid(*s, step=1.5)):
        over_dims("count_nonzero", make, count, ALL + ONE + MANY, grad=False)
    case("count_nonzero", "NaN counts", [f64([NAN, 0, -0.0])],
         lambda x: count(x, None, False), grad=False)
    bools = lambda *s: integers(0, 3, *s) != 0
    for op, fn in dict(any=t_any, all=t_all).items():
        for make in (bools, lambda *s: integers(0, 2, *s),
                     lambda *s: grid(*s, step=1.5)):
            over_dims(op, make, fn, ALL + ONE + MANY, grad=False, check=False)
        case(op, "NaN is true", [f64([NAN, 0])], lambda x: fn(x, None, False), grad=False)
        case(op, "empty", [torch.zeros(0, 3, dtype=torch.bool)],
             lambda x: fn(x, 0, False), attrs=dict(dim=1), grad=False)
    for op, make in dict(var=t_var, std=t_std).items():
        sets = [(s, d) for s, d in ALL + ONE + MANY if s not in ((), (2, 1, 3))]
        over_dims(op, shift, make(1), sets)
        over_dims(op, shift, make(0), sets[:4], attrs=dict(correction=0))
        # the gradient subtracts a mean that was rounded to the dtype: value only
        case(op, "far from zero", [grid(5, 64) + 10000], lambda x: make(1)(x, 1, False),
             attrs=dict(dim=2), grad=False)
    for p in (2, 1, 3, INF, 0, 0.5):
        attrs = {} if p == 2 else dict(p=p)
        sets = ALL[:3] + ONE + MANY if p == 2 else [((3, 5), None), ((3, 5), 1),
                                                    ((2, 3, 4), (0, 2))]
        over_dims("norm", lambda *s: apart(*s, gap=1 / 4) + 1 / 16, t_norm(p), sets,
                  attrs=attrs)
    case("norm", "zeros have gradient zero", [torch.zeros(2, 3, dtype=torch.float64)],
         lambda x: t_norm(2)(x, 1, False), attrs=dict(dim=2))
    case("norm", "no overflow", [f64([3e30, 4e30])], lambda x: t_norm(2)(x, None, False))
    case("logsumexp", "large and infinite", [f64([
        [10000, 10000, 9999], [-10000, -10001, -10000], [INF, 1, 2], [-INF, -INF, 0],
        [NAN, 1, 2]])], lambda x: t_logsumexp(x, 1, False), attrs=dict(dim=2))
    case("logsumexp", "all minus infinity", [f64([[-INF, -INF]])],
         lambda x: t_logsumexp(x, 1, False), attrs=dict(dim=2))
    case("prod", "zeros", [f64([[2, 0, 3], [0, 0, 5], [1, 2, 3]])],
         lambda x: t_prod(x, 1, False), attrs=dict(dim=2))
    case("prod", "one zero among all", [f64([2, 0, 3, 5])], torch.prod)
    case("prod", "with a zero, smooth", [f64([[2, 0, 3], [1.5, 0, 0], [1, 2, 3]])],
         lambda x: t_prod(x, 1, False), attrs=dict(dim=2), check=True)
    for op, fn in dict(sum=t_sum, mean=t_mean).items():
        case(op, "NaN and infinity", [f64([[NAN, 1], [INF, 1], [INF, -INF]])],
             lambda x: fn(x, 1, False), attrs=dict(dim=2))
        case(op, "cancellation", [f64([[2.0 ** 40, 1, -(2.0 ** 40)]])],
             lambda x: fn(x, 1, False), attrs=dict(dim=2))
    for op, fn in dict(sum=t_sum, prod=t_prod).items():
        case(op, "empty", [torch.zeros(0, 3, dtype=torch.float64)],
             lambda x: fn(x, 0, False), attrs=dict(dim=1))
        case(op, "empty over everything", [torch.zeros(0, 3, dtype=torch.float64)],
             lambda x: fn(x, None, False))
        case(op, "nothing left", [torch.zeros(0, 3, dtype=torch.float64)],
             lambda x: fn(x, 1, False), attrs=dict(dim=2))
    case("mean", "empty", [torch.zeros(0, 3, dtype=torch.float64)],
         lambda x: t_mean(x, 0, False), attrs=dict(dim=1))
    for dtype in INTS:
        x = integers(0, 5, 3, 5, dtype=dtype)
        label = str(dtype)[6:]
        case("sum", "all of " + label, [x], lambda t: t.sum())
        case("sum", "dim 1 of " + label, [x], lambda t: t.sum(0), attrs=dict(dim=1))
        case("prod", "dim 2 of " + label, [x + 1], lambda t: t.prod(1), attrs=dict(dim=2))
        case("amax", "dim 2 of " + label, [x], lambda t: t.amax(1), attrs=dict(dim=2))
        case("amin", "dim 2 of " + label, [x], lambda t: t.amin(1), attrs=dict(dim=2))
        case("max", "all of " + label, [x], lambda t: t.max())
        case("min", "all of " + label, [x], lambda t: t.min())
        case("argmax", "dim 2 of " + label, [x], lambda t: t.argmax(1) + 1,
             attrs=dict(dim=2))
        case("cumsum", "dim 2 of " + label, [x], lambda t: t.cumsum(1), attrs=dict(dim=2))
    case("sum", "bools count", [torch.tensor([[True, False], [True, True]])],
         lambda t: t.sum())
    for shape, dim in ONE + [((131,), 0)]:
        case("cumsum", "dim %d of %s" % (lua_dim(dim), "x".join(map(str, shape))),
             [grid(*shape)], lambda x: torch.cumsum(x, dim), attrs=dict(dim=lua_dim(dim)),
             check=len(shape) == 3)
        case("cumsum", "reversed, dim %d of %s" % (lua_dim(dim), "x".join(map(str, shape))),
             [grid(*shape)], lambda x: x.flip(dim).cumsum(dim).flip(dim),
             attrs=dict(dim=lua_dim(dim), reverse=True), check=len(shape) == 3)
    case("cumsum", "empty", [torch.zeros(2, 0, dtype=torch.float64)],
         lambda x: torch.cumsum(x, 1), attrs=dict(dim=2))
    case("cumsum", "0-dim", [grid()], lambda x: torch.cumsum(x, 0), attrs=dict(dim=1))
    case("cumsum", "NaN goes on", [f64([1, NAN, 3])], lambda x: torch.cumsum(x, 0),
         attrs=dict(dim=1))
