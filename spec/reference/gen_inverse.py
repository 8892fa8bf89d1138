# spec/reference/gen_inverse.py: inverses, solutions, determinants, powers below 0.
import torch

from refdata import case, grid


def square(*shape):
    """Far from singular, and no pivot stands where it is wanted."""
    if shape[-1] < 4:
        x = grid(*shape, low=-1, high=1) + 3 * torch.eye(shape[-1]).double()
    else:
        x = grid(*shape, low=-1 / 8, high=1 / 8, step=1 / 512) + torch.eye(shape[-1])
    return x.roll(1, -2)


MATRICES = [("2 x 2", (2, 2)), ("3 x 3", (3, 3)), ("batch", (2, 3, 3)), ("one", (1, 1)),
            ("two batch dims", (2, 2, 2, 2)), ("19 x 19", (19, 19)), ("empty", (0, 0)),
            ("no matrices", (0, 2, 2))]


def inverses():
    for name, shape in MATRICES:
        small = 0 < torch.Size(shape).numel() <= 18
        x = square(*shape)
        case("inverse", name, [x], torch.linalg.inv, check=small)
        case("det", name, [x], torch.linalg.det, check=small)
        case("slogdet", name, [x], lambda x: list(torch.linalg.slogdet(x)), check=small)
    singular = torch.tensor([[1.0, 2], [2, 4]], dtype=torch.float64)
    case("det", "singular", [singular], torch.linalg.det, grad=False)
    case("slogdet", "singular", [singular], lambda x: list(torch.linalg.slogdet(x)),
         grad=False)
    for n in (-1, -2, -5):
        case("matrix_power", "power %d" % n, [square(3, 3)],
             lambda x: torch.matrix_power(x, n), attrs=dict(n=n), check=True)
    case("matrix_power", "power -3 of a batch", [square(2, 2, 2)],
         lambda x: torch.matrix_power(x, -3), attrs=dict(n=-3), check=True)


def solutions():
    def add(name, a, b, check=True, most=3):
        case("solve", name, [square(*a), grid(*b, low=-most, high=most)],
             torch.linalg.solve, check=check)
    add("columns", (3, 3), (3, 2))
    add("vector", (3, 3), (3,))
    add("batch", (2, 2, 2), (2, 2, 3))
    add("a vector for each", (3, 2, 2), (3, 2))
    add("a vector for all", (2, 3, 3), (3,))
    add("batches that broadcast", (2, 1, 2, 2), (3, 2, 1))
    add("one matrix for all", (2, 2), (3, 2, 2))
    add("tail", (19, 19), (19, 5), False, 1 / 2)
    add("no columns", (2, 2), (2, 0), False)
    add("no rows", (0, 0), (0, 2), False)


def generate():
    inverses()
    solutions()
