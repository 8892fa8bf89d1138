# spec/reference/gen_network.py: products, convolution, pooling, losses, indexing ops.
import torch
import torch.nn.functional as F

from refdata import apart, aside, case, f64, grid, integers
from gen_reduce import lua_dim

INF, NAN = float("inf"), float("nan")


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def matmul():
    def add(name, a, b, check=False):
        case("matmul", name, [a, b], torch.matmul, check=check)
    add("vector vector", grid(5), grid(5), True)
    add("matrix vector", grid(3, 5), grid(5), True)
    add("vector matrix", grid(3), grid(3, 5), True)
    add("matrix matrix", grid(3, 4), grid(4, 5), True)
    add("matrix matrix with tails", grid(17, 37), grid(37, 19))
    add("longer than a block", grid(2, 300), grid(300, 3))
    add("batch", grid(2, 3, 4), grid(2, 4, 5), True)
    add("batch and matrix", grid(2, 3, 4), grid(4, 5), True)
    add("matrix and batch", grid(3, 4), grid(2, 4, 5), True)
    add("batch and vector", grid(2, 3, 4), grid(4))
    add("vector and batch", grid(3), grid(2, 3, 4))
    add("broadcast batches", grid(2, 1, 3, 4), grid(3, 4, 2))
    add("broadcast batches both ways", grid(2, 1, 2, 3), grid(1, 3, 3, 2), True)
    add("inner dim empty", zeros(3, 0), zeros(0, 4))
    add("rows empty", zeros(0, 4), grid(4, 2))
    add("batch empty", zeros(0, 2, 3), zeros(0, 3, 2))
    add("one row", grid(1, 7), grid(7, 1))
    add("infinity and NaN", f64([[INF, 1], [NAN, 2]]), f64([[1, 2], [3, 4]]))


def linear_case(name, x, w, b, check=False, activation=None, **more):
    f = dict(none=lambda y: y, relu=F.relu, gelu=F.gelu)[activation or "none"]
    case("linear", name, [x, w, b], lambda x, w, b: f(F.linear(x, w, b)),
         attrs={"activation": activation} if activation else {}, check=check, **more)


def linear():
    add = linear_case
    add("batch", grid(3, 5), grid(4, 5), grid(4), True)
    add("without bias", grid(3, 5), grid(4, 5), None, True)
    add("vector", grid(5), grid(4, 5), grid(4), True)
    add("three dims", grid(2, 3, 5), grid(4, 5), grid(4), True)
    add("tails", grid(7, 37), grid(19, 37), grid(19))
    add("empty batch", zeros(0, 5), grid(4, 5), grid(4))


def linear_activations():
    add, small = linear_case, dict(low=-1, high=1)
    for name in ("relu", "gelu"):
        add(name, grid(3, 5, **small), grid(4, 5, **small), grid(4, **small), True, name)
        add(name + ", three dims without bias", grid(2, 2, 3, **small),
            grid(4, 3, **small), None, True, name)
        add(name + " of a vector", grid(5, **small), grid(4, 5, **small),
            grid(4, **small), True, name)
        add(name + ", tails", grid(17, 37, **small), grid(19, 37, **small),
            grid(19, **small), False, name)
        add(name + " of no features", zeros(2, 0), zeros(3, 0), grid(3), False, name)
        add(name + ", infinity and NaN",
            f64([[INF, 1], [NAN, 2], [-INF, 3], [1, 1]]), f64([[1, 2], [3, 4], [-1, 0]]),
            None, False, name, grad=False)


def conv(op, name, x, w, b, check=False, stride=1, padding=0, dilation=1, groups=1,
         relu=False, **more):
    attrs = {"activation": "relu"} if relu else {}
    after = F.relu if relu else lambda y: y
    for key, v, default in (("stride", stride, 1), ("padding", padding, 0),
                            ("dilation", dilation, 1), ("groups", groups, 1)):
        if v != default:
            attrs[key] = v
    case(op, name, [x, w, b],
         lambda x, w, b: after(F.conv2d(x, w, b, stride, padding, dilation, groups)),
         attrs=attrs, check=check, **more)


CONVS = [
    ("plain", (2, 3, 6, 5), (4, 3, 3, 2), True, {}),
    ("without bias", (2, 2, 5, 6), (3, 2, 2, 3), False, {}),
    ("stride 2", (2, 2, 7, 6), (3, 2, 3, 2), True, dict(stride=2)),
    ("stride and padding by axis", (2, 2, 6, 7), (3, 2, 3, 3), True,
     dict(stride=[2, 1], padding=[1, 2])),
    ("dilation", (1, 2, 7, 8), (2, 2, 3, 2), True, dict(dilation=[2, 3])),
    ("groups", (2, 4, 5, 5), (6, 2, 3, 3), True, dict(groups=2, padding=1)),
    ("depthwise", (2, 3, 5, 6), (3, 1, 3, 3), True, dict(groups=3, padding=1, stride=2)),
    ("1x1", (2, 5, 4, 3), (7, 5, 1, 1), True, {}),
    ("kernel as large as the input", (2, 3, 4, 5), (2, 3, 4, 5), True, {}),
    ("padding beyond the kernel's half", (1, 1, 3, 3), (1, 1, 2, 2), True,
     dict(padding=2)),
    ("stride leaves a rest", (1, 2, 8, 9), (2, 2, 3, 3), True, dict(stride=3)),
]


def small(shape):
    n = 1
    for s in shape:
        n *= s
    return n <= 96


def conv2d():
    for name, xs, ws, bias, kw in CONVS:
        conv("conv2d", name, grid(*xs), grid(*ws, low=-1, high=1),
             grid(ws[0]) if bias else None, small(xs), **kw)
    conv("conv2d", "channels with a tail", grid(1, 17, 5, 19),
         grid(9, 17, 3, 3, low=-1, high=1, step=1 / 4), grid(9), padding=1)
    conv("conv2d", "empty batch", zeros(0, 2, 4, 4), grid(3, 2, 3, 3), grid(3))


POOLS = [
    ("2x2", (2, 3, 4, 6), dict(kernel=2)),
    ("overlapping", (2, 2, 5, 6), dict(kernel=3, stride=1)),
    ("stride 2, kernel 3, padding 1", (2, 2, 6, 7), dict(kernel=3, stride=2, padding=1)),
    ("kernel, stride and padding by axis", (2, 1, 6, 7),
     dict(kernel=[2, 3], stride=[2, 1], padding=[0, 1])),
    ("a rest is left", (1, 2, 5, 7), dict(kernel=2)),
    ("whole plane", (2, 3, 3, 4), dict(kernel=[3, 4])),
    ("tail", (1, 3, 5, 39), dict(kernel=2, stride=2)),
]


def mask_of(index):
    """1-based position in x's plane, as PyTorch's index plus one."""
    return index + 1


def pools():
    for name, shape, kw in POOLS:
        k, s, p = kw["kernel"], kw.get("stride"), kw.get("padding", 0)
        n = 1
        for d in shape:
            n *= d
        case("max_pool2d", name, [apart(*shape)],
             lambda x: tuple((lambda y, i: (y, mask_of(i)))(
                 *F.max_pool2d(x, k, s, p, return_indices=True))),
             attrs=kw, check=n <= 96)
        case("avg_pool2d", name, [grid(*shape)],
             lambda x: F.avg_pool2d(x, k, s, p), attrs=kw, check=n <= 96)
    both = lambda x: tuple((lambda y, i: (y, mask_of(i)))(
        *F.max_pool2d(x, 2, 1, return_indices=True)))
    case("max_pool2d", "ties go to the first, overlaps add up",
         [f64([[[[1, 2, 2], [2, 2, 2], [0, 2, 2]]]])], both,
         attrs=dict(kernel=2, stride=1))
    case("max_pool2d", "negative with padding", [grid(1, 2, 4, 4) - 10],
         lambda x: tuple((lambda y, i: (y, mask_of(i)))(
             *F.max_pool2d(x, 3, 2, 1, return_indices=True))),
         attrs=dict(kernel=3, stride=2, padding=1))
    case("max_pool2d", "minus infinity", [f64([[[[-INF, -INF], [-INF, -INF]]]])], both,
         attrs=dict(kernel=2, stride=1))
    case("max_pool2d", "NaN passes", [f64([[[[1, NAN, 3], [4, 5, 6]]]])], both,
         attrs=dict(kernel=2, stride=1))
    case("max_pool2d", "empty batch", [zeros(0, 2, 4, 4)],
         lambda x: (F.max_pool2d(x, 2), torch.zeros(0, 2, 2, 2, dtype=torch.int64)),
         attrs=dict(kernel=2))
    case("avg_pool2d", "empty batch", [zeros(0, 2, 4, 4)],
         lambda x: F.avg_pool2d(x, 2), attrs=dict(kernel=2))


def activated():
    """relu in conv2d and max_pool2d."""
    for name, xs, ws, bias, kw in CONVS:
        conv("conv2d", "relu, " + name, grid(*xs), grid(*ws, low=-1, high=1),
             grid(ws[0]) if bias else None, small(xs), relu=True, **kw)
    conv("conv2d", "relu, channels with a tail", grid(1, 17, 5, 19),
         grid(9, 17, 3, 3, low=-1, high=1, step=1 / 4), grid(9), padding=1, relu=True)
    conv("conv2d", "relu, empty batch", zeros(0, 2, 4, 4), grid(3, 2, 3, 3), grid(3),
         relu=True)
    conv("conv2d", "relu, infinity and NaN", f64([[[[INF, 1], [NAN, -INF]]]]),
         f64([[[[1]]], [[[-2]]]]), None, relu=True, grad=False)

    def add(name, x, kw, check=False):
        def fn(x):
            y, i = F.max_pool2d(x, kw["kernel"], kw.get("stride"), kw.get("padding", 0),
                                return_indices=True)
            return F.relu(y), torch.where(y <= 0, torch.zeros_like(i), mask_of(i))
        case("max_pool2d", "relu, " + name, [x], fn, check=check,
             attrs=dict(kw, activation="relu"))
    for name, shape, kw in POOLS:
        x = apart(*shape)
        add(name, x, kw, x.numel() <= 96)
    add("nothing above 0", f64([[[[-1, 0], [-2, -INF]]]]), dict(kernel=1))
    add("NaN passes", f64([[[[1, NAN, 3, -1, -2], [4, 5, 6, -3, -4]]]]),
        dict(kernel=2, stride=1))


LARGE = [[10000, 9999, -10000], [-10000, -10000, -10000], [0, 10000, 10000], [1, 2, 3]]


def softmaxes():
    for op, fn in dict(softmax=torch.softmax, log_softmax=torch.log_softmax).items():
        for shape, dim in [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 3, 4), -1),
                           ((7, 37), 1), ((5,), 0), ((1, 300), 1), ((37, 3), 0)]:
            n = 1
            for d in shape:
                n *= d
            case(op, "dim %d of %s" % (lua_dim(dim), "x".join(map(str, shape))),
                 [grid(*shape)], lambda x: fn(x, dim), attrs=dict(dim=lua_dim(dim)),
                 check=n <= 24)
        case(op, "large logits", [f64(LARGE)], lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "minus infinity is masked out", [f64([[-INF, 1, 2], [0, -INF, -INF]])],
             lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "NaN takes its row", [f64([[NAN, 1, 2], [0, 1, 2]])],
             lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "empty", [zeros(0, 3)], lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "no classes", [zeros(3, 0)], lambda x: fn(x, 1), attrs=dict(dim=2))
        case(op, "0-dim", [grid()], lambda x: fn(x, 0), attrs=dict(dim=1))


def losses():
    def ce(**kw):
        return lambda x, t: F.cross_entropy(x, t - 1, **kw)

    def nll(**kw):
        return lambda x, t: F.nll_loss(x, t - 1, **kw)
    for op, make in dict(cross_entropy=ce, nll_loss=nll).items():
        for dtype in (torch.int64,):
            case(op, "mean", [grid(4, 5), integers(1, 5, 4, dtype=dtype)], make(),
                 check=True)
        for reduction in ("sum", "none"):
            case(op, reduction, [grid(4, 5), integers(1, 5, 4)],
                 make(reduction=reduction), attrs=dict(reduction=reduction), check=True)
        case(op, "many classes", [grid(3, 131), integers(1, 131, 3)], make())
        case(op, "more rows than a block", [grid(131, 3), integers(1, 3, 131)], make())
        case(op, "large", [f64(LARGE), torch.tensor([1, 2, 1, 3])], make())
        case(op, "dims behind the classes", [grid(2, 3, 2, 2), integers(1, 3, 2, 2, 2)],
             make(), check=True)
        case(op, "one vector", [grid(5), torch.tensor(4)], make(), check=True)
        case(op, "labels from the end", [grid(3, 4), torch.tensor([-1, 2, -4])],
             lambda x, t: make()(x, torch.where(t < 0, t + 5, t)))
    case("cross_entropy", "one example", [grid(1, 2), torch.tensor([2])], ce(), check=True)
    for reduction in ("mean", "sum", "none"):
        attrs = {} if reduction == "mean" else dict(reduction=reduction)
        case("mse_loss", reduction, [grid(3, 4), grid(3, 4)],
             lambda a, b: F.mse_loss(a, b, reduction=reduction), attrs=attrs, check=True)
    case("mse_loss", "tail", [grid(3, 37), grid(3, 37)], F.mse_loss)
    case("mse_loss", "0-dim", [grid(), grid()], F.mse_loss)


def indexing():
    case("embedding", "matrix of indices", [grid(6, 4), integers(1, 6, 2, 3)],
         lambda w, i: F.embedding(i - 1, w), check=True)
    case("embedding", "the same row many times", [grid(3, 2), torch.tensor([2, 2, 1, 2])],
         lambda w, i: F.embedding(i - 1, w), check=True)
    case("embedding", "one index", [grid(6, 4), torch.tensor(3)],
         lambda w, i: F.embedding(i - 1, w))
    case("embedding", "no indices", [grid(6, 4), torch.zeros(2, 0, dtype=torch.int64)],
         lambda w, i: F.embedding(i - 1, w))
    case("embedding", "tail", [grid(19, 37), integers(1, 19, 41)],
         lambda w, i: F.embedding(i - 1, w))

    for shape, dim, count in [((3, 5), 1, 4), ((3, 5), 0, 4), ((2, 3, 4), 1, 5),
                              ((7, 37), 1, 3)]:
        index = integers(1, shape[dim], count)
        case("index_select", "dim %d of %s" % (dim + 1, "x".join(map(str, shape))),
             [grid(*shape), index], lambda x, i: x.index_select(dim, i - 1),
             attrs=dict(dim=dim + 1), check=len(shape) == 3)
        ishape = list(shape)
        ishape[dim] = count
        index = integers(1, shape[dim], *ishape)
        case("gather", "dim %d of %s" % (dim + 1, "x".join(map(str, shape))),
             [grid(*shape), index], lambda x, i: x.gather(dim, i - 1),
             attrs=dict(dim=dim + 1), check=len(shape) == 3)
        case("scatter_add", "dim %d of %s" % (dim + 1, "x".join(map(str, shape))),
             [grid(*shape), index, grid(*ishape)],
             lambda x, i, s: x.scatter_add(dim, i - 1, s),
             attrs=dict(dim=dim + 1), check=len(shape) == 3)
    case("index_select", "from the end", [grid(4, 3), torch.tensor([-1, 1, -4])],
         lambda x, i: x.index_select(0, torch.where(i < 0, i + 4, i - 1)),
         attrs=dict(dim=1))
    case("index_select", "none", [grid(4, 3), torch.zeros(0, dtype=torch.int64)],
         lambda x, i: x.index_select(0, i), attrs=dict(dim=1))
    case("gather", "an index smaller than the rest",
         [grid(4, 5), integers(1, 4, 2, 3)], lambda x, i: x.gather(0, i - 1),
         attrs=dict(dim=1), check=True)
    case("scatter_add", "everything to one place",
         [grid(2, 3), torch.full((2, 5), 2, dtype=torch.int64), grid(2, 5)],
         lambda x, i, s: x.scatter_add(1, i - 1, s), attrs=dict(dim=2), check=True)


    case("embedding", "from the end", [grid(4, 3), torch.tensor([-1, 1, -4])],
         lambda w, i: F.embedding(torch.where(i < 0, i + 4, i - 1), w))
    for shape, dim, count in [((3, 5), 1, 4), ((4, 3), 0, 3), ((2, 3, 4), 1, 5)]:
        sshape = list(shape)
        sshape[dim] = count
        label = "dim %d of %s" % (dim + 1, "x".join(map(str, shape)))
        case("index_add", label, [grid(*shape), integers(1, shape[dim], count),
                                  grid(*sshape)],
             lambda x, i, s: x.index_add(dim, i - 1, s), attrs=dict(dim=dim + 1),
             check=len(shape) == 3)
        sshape[dim] = 2
        order = torch.tensor([shape[dim], 1])
        case("index_copy", label, [grid(*shape), order, grid(*sshape)],
             lambda x, i, s: x.index_copy(dim, i - 1, s), attrs=dict(dim=dim + 1),
             check=len(shape) == 3, exact=True)
    case("index_copy", "int64", [integers(0, 9, 4, 3), torch.tensor([-1, 2]),
                                 integers(10, 19, 2, 3)],
         lambda x, i, s: x.index_copy(0, torch.where(i < 0, i + 4, i - 1), s),
         attrs=dict(dim=1), exact=True)

    def mask(*s):
        return integers(0, 1, *s).bool()
    case("masked_select", "matrix", [grid(3, 5), mask(3, 5)],
         lambda x, m: x.masked_select(m), check=True, exact=True)
    case("masked_select", "mask broadcast", [grid(2, 3, 4), mask(3, 1)],
         lambda x, m: x.masked_select(m), check=True, exact=True)
    case("masked_select", "none", [grid(3), torch.tensor([False] * 3)],
         lambda x, m: x.masked_select(m), exact=True)
    case("masked_select", "int64", [integers(0, 9, 3, 37), mask(3, 37)],
         lambda x, m: x.masked_select(m), exact=True)
    for name, x in dict(matrix=integers(0, 1, 3, 5), vector=grid(9, step=1.5),
                        bools=mask(2, 3, 4), none=torch.zeros(3),
                        special=f64([NAN, 0, -0.0, INF])).items():
        x = x.double() if x.dtype == torch.float32 else x
        case("nonzero", name, [x], lambda x: torch.nonzero(x) + 1, grad=False)


def backward_of(forward, with_respect_to):
    """The gradient as a differentiable function, for the ops that compute gradients."""
    def fn(x, dy):
        with torch.enable_grad():
            if not x.requires_grad:
                x = x.detach().requires_grad_()
            return torch.autograd.grad(forward(x), x, dy, create_graph=True)[0]
    return fn


def linear_part(forward, x):
    """forward is linear in x: its gradient with respect to x, times dy."""
    def fn(dy):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            return torch.autograd.grad(forward(at), at, dy, create_graph=True)[0]
    return fn


def softmax_backwards():
    def soft(dim):
        return lambda y, dy: y * (dy - (y * dy).sum(dim, keepdim=True))

    def log_soft(dim):
        return lambda y, dy: dy - torch.exp(y) * dy.sum(dim, keepdim=True)
    for shape, dim in [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((7, 37), -1)]:
        label = "dim %d of %s" % (lua_dim(dim), "x".join(map(str, shape)))
        y = torch.round(torch.softmax(grid(*shape), dim) * 256) / 256
        logy = torch.round(torch.log_softmax(grid(*shape), dim) * 64) / 64
        case("softmax_backward", label, [y, grid(*shape)], soft(dim),
             attrs=dict(dim=lua_dim(dim)), check=len(shape) == 3)
        case("log_softmax_backward", label, [logy, grid(*shape)], log_soft(dim),
             attrs=dict(dim=lua_dim(dim)), check=len(shape) == 3)


def loss_backwards():
    for op, forward in dict(nll_loss=F.nll_loss, cross_entropy=F.cross_entropy).items():
        for reduction in ("mean", "sum", "none"):
            attrs = {} if reduction == "mean" else dict(reduction=reduction)
            x, t = grid(4, 5), integers(1, 5, 4)
            dy = grid(4) if reduction == "none" else grid()

            def fn(x, t, dy):
                f = lambda at: forward(at, t - 1, reduction=reduction)
                return backward_of(f, x)(x, dy)
            case(op + "_backward", reduction, [x, t, dy], fn, attrs=attrs, check=True)


def conv_backwards():
    for name, xs, ws, _, kw in CONVS:
        x, w = grid(*xs), grid(*ws, low=-1, high=1)
        dy = grid(*F.conv2d(x, w, None, **kw).shape)
        attrs = {k: v for k, v in kw.items()}
        check = small(xs) and dy.numel() <= 48

        def input_fn(w, dy):
            at = torch.zeros(xs, dtype=torch.float64, requires_grad=True)
            y = F.conv2d(at, w, None, **kw)
            return torch.autograd.grad(y, at, dy, create_graph=True)[0]

        def weight_fn(x, dy):
            at = torch.zeros(ws, dtype=torch.float64, requires_grad=True)
            y = F.conv2d(x, at, None, **kw)
            return torch.autograd.grad(y, at, dy, create_graph=True)[0]
        case("conv2d_backward_input", name, [w, dy], input_fn,
             attrs=dict(size=list(xs[2:]), **attrs), check=check)
        case("conv2d_backward_weight", name, [x, dy], weight_fn,
             attrs=dict(kernel=list(ws[2:]), **attrs), check=check)


def pool_backwards():
    for name, shape, kw in POOLS:
        k, s, p = kw["kernel"], kw.get("stride"), kw.get("padding", 0)
        x = apart(*shape)
        y, index = F.max_pool2d(x, k, s, p, return_indices=True)
        dy = grid(*y.shape)
        check = dy.numel() <= 48
        n, c, h, w = shape

        def max_fn(mask, dy):
            flat = torch.zeros(n, c, h * w, dtype=torch.float64)
            return flat.scatter_add(2, (mask - 1).reshape(n, c, -1), dy.reshape(n, c, -1)
                                    ).reshape(shape)
        case("max_pool2d_backward", name, [mask_of(index), dy], max_fn,
             attrs=dict(size=[h, w]), check=check)
        dy = grid(*F.avg_pool2d(x, k, s, p).shape)
        case("avg_pool2d_backward", name, [dy],
             linear_part(lambda at: F.avg_pool2d(at, k, s, p), x),
             attrs=dict(size=[h, w], **kw), check=check)


def embedding_backwards():
    for name, index, rows, width in [
            ("matrix of indices", integers(1, 6, 2, 3), 6, 4),
            ("the same row many times", torch.tensor([2, 2, 1, 2]), 3, 2),
            ("tail", integers(1, 5, 41), 5, 37)]:
        w = grid(rows, width)
        case("embedding_backward", name, [index, grid(*index.shape, width)],
             lambda i, dy: linear_part(lambda at: F.embedding(i - 1, at), w)(dy),
             attrs=dict(rows=rows), check=name != "tail")


def generate():
    softmax_backwards()
    loss_backwards()
    conv_backwards()
    pool_backwards()
    embedding_backwards()
    matmul()
    linear()
    with aside():
        linear_activations()
    conv2d()
    pools()
    with aside(7):
        activated()
    softmaxes()
    losses()
    indexing()
