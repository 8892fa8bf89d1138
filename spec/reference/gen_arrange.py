# spec/reference/gen_arrange.py: other views, rearrangements, and what is made of products.
import torch
import torch.nn.functional as F

from gen_shape import view
from refdata import case, grid, integers


def other(op, name, shape, like, fn):
    case(op, name, [grid(*shape), integers(0, 1, *like)], fn, check=True, exact=True)


def views():
    other("view_as", "flat", (4, 3), (2, 6), lambda x, y: x.reshape(y.shape))
    other("view_as", "0-dim", (1, 1), (), lambda x, y: x.reshape(y.shape))
    other("reshape_as", "flat", (4, 3), (2, 6), lambda x, y: x.reshape(y.shape))
    other("expand_as", "rows", (3, 1), (2, 3, 4), lambda x, y: x.expand(y.shape))
    view("movedim", "one", (2, 3, 4), lambda x: x.movedim(0, 2),
         dict(source=1, destination=3))
    view("movedim", "two", (2, 3, 4), lambda x: x.movedim((0, 1), (2, 0)),
         dict(source=[1, 2], destination=[3, 1]))
    view("movedim", "from the end", (2, 3, 4), lambda x: x.movedim(-1, 0),
         dict(source=-1, destination=1))
    view("movedim", "0-dim", (), lambda x: x.movedim(0, 0), dict(source=1, destination=1))
    view("unflatten", "last dim", (2, 6), lambda x: x.reshape(2, 2, 3),
         dict(dim=2, shape=[2, 3]))
    view("unflatten", "one size to find", (6, 2), lambda x: x.reshape(2, 3, 2),
         dict(dim=1, shape=[2, -1]))
    view("unflatten", "empty", (0, 2), lambda x: x.reshape(0, 5, 2),
         dict(dim=1, shape=[0, 5]))
    view("diag", "of a matrix", (3, 4), lambda x: x.diag(), {})
    view("diag", "above", (3, 4), lambda x: x.diag(1), dict(offset=1))
    view("diag", "below", (4, 3), lambda x: x.diag(-2), dict(offset=-2))
    view("diag", "of a vector", (3,), lambda x: x.diag(), {})
    view("diag", "of a vector, below", (3,), lambda x: x.diag(-1), dict(offset=-1))
    view("diag_embed", "vector", (3,), lambda x: x.diag_embed(), {})
    view("diag_embed", "batch, above", (2, 3), lambda x: x.diag_embed(1), dict(offset=1))
    view("diag_embed", "given dims", (2, 3), lambda x: x.diag_embed(-1, 0, 2),
         dict(offset=-1, dim1=1, dim2=3))
    view("diag_embed", "dims exchanged", (2, 3), lambda x: x.diag_embed(1, 2, 0),
         dict(offset=1, dim1=3, dim2=1))
    view("diag_embed", "empty", (2, 0), lambda x: x.diag_embed(), {})
    case("trace", "wide", [grid(3, 4)], torch.trace, check=True)
    # PyTorch 1.13 gives a wrong gradient where there are more rows than columns
    case("trace", "tall", [grid(5, 2)], lambda x: x.diagonal().sum(), check=True)
    case("trace", "int64", [integers(-9, 9, 3, 3)], torch.trace)
    case("trace", "empty", [grid(0, 3)], torch.trace)
    for k in (0, 1, 2, 3, -1, 5):
        view("rot90", "%d turns" % k, (3, 4), lambda x: x.rot90(k, (0, 1)), dict(k=k))
    view("rot90", "other dims", (2, 3, 2), lambda x: x.rot90(1, (2, 0)),
         dict(k=1, dim=[3, 1]))
    view("fliplr", "matrix", (3, 4), lambda x: x.fliplr(), {})
    view("flipud", "matrix", (3, 4), lambda x: x.flipud(), {})
    view("flipud", "vector", (3,), lambda x: x.flipud(), {})
    for op in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for shape in ((), (3,), (2, 3), (2, 3, 2), (1, 2, 3, 2)):
            view(op, "%d dims" % len(shape), shape, getattr(torch, op), {})
    view("as_strided", "transposed", (3, 4), lambda x: x.as_strided((4, 3), (1, 4)),
         dict(shape=[4, 3], stride=[1, 4], offset=0))
    view("as_strided", "overlapping", (7,), lambda x: x.as_strided((3, 3), (2, 1), 0),
         dict(shape=[3, 3], stride=[2, 1], offset=0))
    view("as_strided", "offset", (3, 4), lambda x: x.as_strided((2, 2), (4, 2), 1),
         dict(shape=[2, 2], stride=[4, 2], offset=1))


def triangles():
    for op in ("tril", "triu"):
        fn = getattr(torch, op)
        view(op, "matrix", (3, 4), fn, {})
        for k in (1, -1, 5, -5):
            view(op, "diagonal %d" % k, (4, 3), lambda x: fn(x, k), dict(diagonal=k))
        view(op, "batch", (2, 3, 3), fn, {})
        view(op, "empty", (0, 3), fn, {})
        x = grid(3, 3)
        x[0, 2] = x[2, 0] = float("inf")
        case(op, "infinities go", [x], fn, exact=True)


def padding():
    view("pad", "last dim", (2, 3), lambda x: F.pad(x, (1, 2)), dict(sizes=[1, 2]))
    view("pad", "two dims", (2, 3), lambda x: F.pad(x, (1, 0, 2, 1), value=2.0),
         dict(sizes=[1, 0, 2, 1], value=2))
    view("pad", "cut", (4, 3), lambda x: F.pad(x, (-1, 1, 0, -2)),
         dict(sizes=[-1, 1, 0, -2]))
    view("pad", "nothing", (2, 3), lambda x: F.pad(x, (0, 0)), dict(sizes=[0, 0]))
    view("pad", "empty", (0, 3), lambda x: F.pad(x, (1, 1)), dict(sizes=[1, 1]))
    for mode in ("reflect", "replicate", "circular"):
        def fn(*sizes):
            return lambda x: F.pad(x.double(), sizes, mode=mode).to(x.dtype)
        view("pad", mode + " 1-d", (1, 2, 4), fn(2, 3), dict(sizes=[2, 3], mode=mode))
        view("pad", mode + " 2-d", (1, 1, 3, 4), fn(1, 2, 2, 1),
             dict(sizes=[1, 2, 2, 1], mode=mode))
        case("pad", mode + " larger", [grid(2, 3, 9, 8)], fn(3, 2, 4, 5),
             attrs=dict(sizes=[3, 2, 4, 5], mode=mode), exact=True)


def windows():
    settings = [dict(kernel=2), dict(kernel=[2, 3], padding=1),
                dict(kernel=[3, 2], dilation=[1, 2], padding=[1, 2], stride=[2, 1])]
    for i, attrs in enumerate(settings):
        words = dict(kernel_size=attrs["kernel"], dilation=attrs.get("dilation", 1),
                     padding=attrs.get("padding", 0), stride=attrs.get("stride", 1))
        x = grid(2, 2, 4, 5)
        case("im2col", "batch %d" % i, [x], lambda x: F.unfold(x, **words), attrs=attrs,
             exact=True)
        case("im2col", "no batch %d" % i, [grid(1, 4, 5)],
             lambda x: F.unfold(x[None], **words)[0], attrs=attrs, check=True, exact=True)
        y = F.unfold(x, **words)
        more = dict(size=[4, 5], **attrs)
        case("fold", "batch %d" % i, [grid(*y.shape)],
             lambda y: F.fold(y, (4, 5), **words), attrs=more)
        case("fold", "no batch %d" % i, [grid(*F.unfold(x[:1, :1], **words)[0].shape)],
             lambda y: F.fold(y[None], (4, 5), **words)[0], attrs=more, check=True)
    case("im2col", "int64", [integers(0, 9, 2, 1, 4, 4)], lambda x: F.unfold(
        x.double(), 2).long(), attrs=dict(kernel=2))
    view("pixel_shuffle", "one plane", (4, 2, 3), lambda x: F.pixel_shuffle(x, 2),
         dict(factor=2))
    view("pixel_shuffle", "batch", (2, 9, 2, 1), lambda x: F.pixel_shuffle(x, 3),
         dict(factor=3))
    view("pixel_unshuffle", "one plane", (1, 4, 6), lambda x: F.pixel_unshuffle(x, 2),
         dict(factor=2))
    view("pixel_unshuffle", "batch", (2, 2, 3, 3), lambda x: F.pixel_unshuffle(x, 3),
         dict(factor=3))


def joins():
    def join(op, name, shapes, exact=True):
        fn = getattr(torch, op)
        case(op, name, [[grid(*s) for s in shapes]], lambda l: fn(l), check=True,
             exact=True)
        case(op, name + " of int64", [[integers(-9, 9, *s) for s in shapes]],
             lambda l: fn(l), exact=True)
    for op in ("hstack", "vstack", "dstack", "column_stack"):
        join(op, "vectors", [(3,), (3,)])
        join(op, "0-dim", [(), (), ()])
    join("hstack", "matrices", [(2, 3), (2, 1)])
    join("vstack", "matrices", [(2, 3), (1, 3)])
    join("vstack", "a matrix and a vector", [(2, 3), (3,)])
    join("dstack", "matrices", [(2, 3), (2, 3)])
    join("column_stack", "a vector and a matrix", [(3,), (3, 2)])
    def blocks(name, shapes):
        case("block_diag", name, [[grid(*s) for s in shapes]],
             lambda l: torch.block_diag(*l), check=True, exact=True)
    blocks("matrices", [(2, 3), (1, 1), (3, 1)])
    blocks("vectors and 0-dim", [(2,), (), (2, 2)])
    blocks("one", [(2, 2)])
    case("block_diag", "int64", [[integers(0, 9, 2, 2), integers(0, 9, 1, 3)]],
         lambda l: torch.block_diag(*l))
    def product(name, sizes):
        case("cartesian_prod", name, [[grid(n) for n in sizes]],
             lambda l: torch.cartesian_prod(*l), check=True, exact=True)
    product("two", [2, 3])
    product("three", [2, 1, 3])
    product("one", [3])
    product("an empty one", [2, 0])
    case("cartesian_prod", "int64", [[integers(0, 9, 3), integers(0, 9, 2)]],
         lambda l: torch.cartesian_prod(*l))


def products():
    def pair(op, name, a, b, fn, check=True, **kw):
        case(op, name, [grid(*a), grid(*b)], fn, check=check, **kw)
        case(op, name + " of int64", [integers(-9, 9, *a), integers(-9, 9, *b)], fn, **kw)
    pair("outer", "vectors", (3,), (4,), torch.outer)
    pair("outer", "empty", (0,), (4,), torch.outer, check=False)
    pair("inner", "vectors", (3,), (3,), torch.inner)
    pair("inner", "matrices", (2, 3), (4, 3), torch.inner)
    pair("inner", "more dims", (2, 2, 3), (3,), torch.inner)
    pair("inner", "0-dim", (), (2, 3), torch.inner)
    pair("kron", "matrices", (2, 3), (3, 2), torch.kron)
    pair("kron", "vector and matrix", (2,), (2, 2), torch.kron)
    pair("kron", "0-dim", (), (2,), torch.kron)
    pair("cross", "vectors", (3,), (3,), torch.cross)
    pair("cross", "last dim", (2, 3), (2, 3), lambda a, b: torch.cross(a, b, dim=1),
         attrs=dict(dim=-1))
    pair("cross", "first dim of size 3", (2, 3, 3), (2, 3, 3),
         lambda a, b: torch.cross(a, b, dim=1))
    pair("cross", "broadcast", (4, 3), (3,), lambda a, b: torch.cross(
        a, b.expand(4, 3), dim=1), attrs=dict(dim=2))
    for op, shapes in dict(addmm=((2, 4), (2, 3), (3, 4)), addmv=((2,), (2, 3), (3,)),
                           addr=((2, 4), (2,), (4,)),
                           baddbmm=((2, 2, 4), (2, 2, 3), (2, 3, 4)),
                           addbmm=((2, 4), (2, 2, 3), (2, 3, 4))).items():
        fn = getattr(torch, op)
        small = [grid(*s, step=1 / 4) for s in shapes]
        case(op, "sum", small, fn, check=True)
        case(op, "factors", [grid(*s) for s in shapes],
             lambda x, a, b: fn(x, a, b, beta=0.5, alpha=-2), attrs=dict(beta=0.5,
             alpha=-2), check=True)
        nan = grid(*shapes[0]) * float("nan")
        case(op, "beta 0", [nan, grid(*shapes[1]), grid(*shapes[2])],
             lambda x, a, b: fn(torch.zeros(shapes[0]).double(), a, b),
             attrs=dict(beta=0))
        case(op, "broadcast", [grid(shapes[0][-1]) if op != "addmv" else grid(1),
                               grid(*shapes[1]), grid(*shapes[2])], fn, check=True)
        case(op, "int64", [integers(-9, 9, *s) for s in shapes],
             lambda x, a, b: fn(x, a, b, beta=2, alpha=3), attrs=dict(beta=2, alpha=3))
    case("matrix_power", "power 0", [grid(3, 3)], lambda x: torch.matrix_power(x, 0),
         attrs=dict(n=0), grad=False)
    for n in (1, 2, 3, 6):
        case("matrix_power", "power %d" % n, [grid(3, 3, low=-1, high=1)],
             lambda x: torch.matrix_power(x, n), attrs=dict(n=n), check=True)
    case("matrix_power", "batch", [grid(2, 2, 2)], lambda x: torch.matrix_power(x, 3),
         attrs=dict(n=3), check=True)
    case("matrix_power", "int64", [integers(-3, 3, 3, 3)], lambda x: torch.matrix_power(
        x.double(), 5).long(), attrs=dict(n=5))
    chain = torch.linalg.multi_dot
    case("chain_matmul", "four", [[grid(2, 5), grid(5, 1), grid(1, 4), grid(4, 3)]],
         lambda l: chain(l), check=True)
    case("chain_matmul", "vectors at the ends", [[grid(3), grid(3, 4), grid(4)]],
         lambda l: chain(l), check=True)
    case("chain_matmul", "two", [[grid(2, 3), grid(3, 2)]], lambda l: chain(l), check=True)
    case("chain_matmul", "one", [[grid(2, 3)]], lambda l: l[0] * 1)
    case("chain_matmul", "int64", [[integers(-3, 3, 2, 3), integers(-3, 3, 3, 4),
         integers(-3, 3, 4, 2)]], lambda l: chain([t.double() for t in l]).long())


def generate():
    views()
    triangles()
    padding()
    windows()
    joins()
    products()
