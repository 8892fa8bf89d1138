# spec/reference/gen_shape.py: views, joining, splitting, repeating.
import torch

from refdata import case, grid, integers
from gen_reduce import lua_dim


def view(op, name, shape, fn, attrs, check=True):
    n = 1
    for s in shape:
        n *= s
    case(op, name, [grid(*shape)], fn, attrs=attrs, check=check and 0 < n <= 24,
         exact=True)
    case(op, name + " of int64", [integers(-99, 99, *shape)], fn, attrs=attrs, exact=True)


def views():
    view("narrow", "rows", (4, 3), lambda x: x.narrow(0, 1, 2),
         dict(dim=1, start=2, length=2))
    view("narrow", "last dim", (2, 3, 4), lambda x: x.narrow(2, 1, 3),
         dict(dim=-1, start=2, length=3))
    view("narrow", "nothing", (4, 3), lambda x: x.narrow(0, 4, 0),
         dict(dim=1, start=5, length=0))
    view("select", "a row", (4, 3), lambda x: x.select(0, 2), dict(dim=1, index=3))
    view("select", "a column from the end", (4, 3), lambda x: x.select(1, -1),
         dict(dim=2, index=-1))
    view("select", "an element", (4,), lambda x: x.select(0, 1), dict(dim=1, index=2))
    view("transpose", "matrix", (4, 3), lambda x: x.transpose(0, 1), dict(dim0=1, dim1=2))
    view("transpose", "from the end", (2, 3, 4), lambda x: x.transpose(0, -1),
         dict(dim0=1, dim1=-1))
    view("permute", "three dims", (2, 3, 4), lambda x: x.permute(2, 0, 1),
         dict(order=[3, 1, 2]))
    view("permute", "nothing moves", (2, 3), lambda x: x.permute(0, 1), dict(order=[1, 2]))
    view("permute", "0-dim", (), lambda x: x.permute([]), dict(order=[]))
    for op in ("view", "reshape"):
        view(op, "flat", (4, 3), lambda x: x.reshape(12), dict(shape=[12]))
        view(op, "one size to find", (2, 3, 4), lambda x: x.reshape(4, -1),
             dict(shape=[4, -1]))
        view(op, "to 0-dim", (1, 1), lambda x: x.reshape([]), dict(shape=[]))
        view(op, "empty", (0, 3), lambda x: x.reshape(3, 0), dict(shape=[3, 0]))
    view("expand", "columns", (3, 1), lambda x: x.expand(3, 4), dict(shape=[3, 4]))
    view("expand", "new leading dims", (1, 3), lambda x: x.expand(2, 4, 3),
         dict(shape=[2, 4, 3]))
    view("expand", "sizes kept", (1, 3), lambda x: x.expand(4, -1), dict(shape=[4, -1]))
    view("expand", "0-dim", (), lambda x: x.expand(2, 3), dict(shape=[2, 3]))
    view("expand", "to nothing", (1, 3), lambda x: x.expand(0, 3), dict(shape=[0, 3]))
    view("unfold", "overlapping", (7,), lambda x: x.unfold(0, 3, 2),
         dict(dim=1, size=3, step=2))
    view("unfold", "middle dim", (2, 5, 2), lambda x: x.unfold(1, 2, 1),
         dict(dim=2, size=2, step=1))
    view("unfold", "gaps", (7, 2), lambda x: x.unfold(0, 2, 3),
         dict(dim=1, size=2, step=3))
    view("diagonal", "main", (3, 4), lambda x: x.diagonal(), {})
    view("diagonal", "above", (3, 4), lambda x: x.diagonal(1), dict(offset=1))
    view("diagonal", "below", (4, 3), lambda x: x.diagonal(-2), dict(offset=-2))
    view("diagonal", "of a batch", (2, 3, 3), lambda x: x.diagonal(0, 1, 2),
         dict(offset=0, dim1=2, dim2=3))
    view("diagonal", "outside", (2, 3), lambda x: x.diagonal(5), dict(offset=5))
    view("squeeze", "all", (1, 3, 1, 2), lambda x: x.squeeze(), {})
    view("squeeze", "one dim", (1, 3, 1), lambda x: x.squeeze(2), dict(dim=3))
    view("squeeze", "a dim longer than 1", (2, 3), lambda x: x.squeeze(0), dict(dim=1))
    view("unsqueeze", "front", (2, 3), lambda x: x.unsqueeze(0), dict(dim=1))
    view("unsqueeze", "back", (2, 3), lambda x: x.unsqueeze(-1), dict(dim=-1))
    view("flatten", "all", (2, 3, 4), lambda x: x.flatten(), {})
    view("flatten", "the last two", (2, 3, 4), lambda x: x.flatten(1), dict(first=2))
    view("flatten", "the first two", (2, 3, 4), lambda x: x.flatten(0, 1),
         dict(first=1, last=2))
    view("flatten", "0-dim", (), lambda x: x.flatten(), {})


def joins():
    case("cat", "rows", [[grid(2, 3), grid(1, 3), grid(3, 3)]],
         lambda l: torch.cat(l, 0), attrs=dict(dim=1), check=True, exact=True)
    case("cat", "columns", [[grid(2, 3), grid(2, 1)]],
         lambda l: torch.cat(l, 1), attrs=dict(dim=-1), check=True, exact=True)
    case("cat", "middle, one empty", [[grid(2, 0, 2), grid(2, 2, 2), grid(2, 1, 2)]],
         lambda l: torch.cat(l, 1), attrs=dict(dim=2), exact=True)
    case("cat", "one tensor", [[grid(2, 3)]], lambda l: torch.cat(l, 0),
         attrs=dict(dim=1), exact=True)
    case("cat", "int64", [[integers(0, 9, 2, 3), integers(0, 9, 1, 3)]],
         lambda l: torch.cat(l, 0), attrs=dict(dim=1), exact=True)
    case("stack", "front", [[grid(2, 3), grid(2, 3), grid(2, 3)]],
         lambda l: torch.stack(l, 0), attrs=dict(dim=1), check=True, exact=True)
    case("stack", "back", [[grid(2, 3), grid(2, 3)]],
         lambda l: torch.stack(l, 2), attrs=dict(dim=3), check=True, exact=True)
    case("stack", "from the end", [[grid(2, 3), grid(2, 3)]],
         lambda l: torch.stack(l, -1), attrs=dict(dim=-1), exact=True)
    case("stack", "0-dim", [[grid(), grid()]],
         lambda l: torch.stack(l, 0), attrs=dict(dim=1), exact=True)


def splits():
    view("split", "equal parts", (6, 2), lambda x: x.split(2, 0), dict(size=2, dim=1))
    view("split", "a shorter last part", (2, 5), lambda x: x.split(2, 1),
         dict(size=2, dim=2))
    view("split", "given sizes", (6, 2), lambda x: x.split([1, 3, 2], 0),
         dict(size=[1, 3, 2], dim=1))
    view("chunk", "three", (7, 2), lambda x: x.chunk(3, 0), dict(count=3, dim=1))
    view("chunk", "fewer than asked", (2, 5), lambda x: x.chunk(4, 1),
         dict(count=4, dim=2))


def repeats():
    view("repeat_interleave", "rows", (2, 3), lambda x: x.repeat_interleave(3, 0),
         dict(repeats=3, dim=1))
    view("repeat_interleave", "columns", (2, 3), lambda x: x.repeat_interleave(2, 1),
         dict(repeats=2, dim=2))
    view("repeat_interleave", "flat", (2, 3), lambda x: x.repeat_interleave(2),
         dict(repeats=2))
    view("tile", "both dims", (2, 3), lambda x: x.tile(2, 2), dict(repeats=[2, 2]))
    view("tile", "new leading dim", (2, 3), lambda x: x.tile(3, 1, 2),
         dict(repeats=[3, 1, 2]))
    view("tile", "fewer counts than dims", (2, 3), lambda x: x.tile(2),
         dict(repeats=[2]))
    view("flip", "one dim", (3, 4), lambda x: x.flip(0), dict(dim=[1]))
    view("flip", "two dims", (2, 3, 4), lambda x: x.flip(0, -1), dict(dim=[1, -1]))
    view("roll", "one dim", (3, 4), lambda x: x.roll(1, 1), dict(shifts=1, dim=2))
    view("roll", "backward and far", (3, 4), lambda x: x.roll(-7, 1),
         dict(shifts=-7, dim=2))
    view("roll", "two dims", (3, 4), lambda x: x.roll((1, -1), (0, 1)),
         dict(shifts=[1, -1], dim=[1, 2]))
    view("roll", "flat", (3, 4), lambda x: x.roll(5), dict(shifts=5))


def generate():
    views()
    joins()
    splits()
    repeats()
