# spec/reference/gen_layer_norm.py: layer normalisation and its gradient.
import torch
import torch.nn.functional as F

from gen_network import NAN, small, zeros
from refdata import case, f64, grid

NORMS = [
    ("rows", (3, 5), 1, True, True),
    ("without bias", (3, 5), 1, True, False),
    ("bias alone", (3, 5), 1, False, True),
    ("without both", (2, 3, 4), 1, False, False),
    ("two dims", (2, 3, 4), 2, True, True),
    ("all dims", (3, 4), 2, True, True),
    ("vector", (6,), 1, True, True),
    ("tail", (7, 37), 1, True, True),
    ("longer than a block", (1, 1030), 1, False, True),
    ("more rows than parts", (41, 8), 1, True, True),
]


def norm_inputs(shape, dims, weight, bias):
    last = shape[len(shape) - dims:]
    w = grid(*last, low=-2, high=2) if weight else None
    return w, grid(*last) if bias else None, last


def layer_norms():
    for name, shape, dims, weight, bias in NORMS:
        w, b, last = norm_inputs(shape, dims, weight, bias)
        attrs = {} if dims == 1 else dict(dims=dims)
        case("layer_norm", name, [grid(*shape), w, b],
             lambda x, w, b: F.layer_norm(x, last, w, b), attrs=attrs,
             check=small(shape))
    case("layer_norm", "large epsilon", [grid(3, 5), grid(5), grid(5)],
         lambda x, w, b: F.layer_norm(x, (5,), w, b, 0.5), attrs=dict(epsilon=0.5),
         check=True)
    case("layer_norm", "all the same", [f64([[3, 3, 3], [1, 2, 4]]), grid(3), grid(3)],
         lambda x, w, b: F.layer_norm(x, (3,), w, b))
    case("layer_norm", "mean far above the deviation",
         [grid(2, 40, low=4000, high=4003), None, None],
         lambda x, w, b: F.layer_norm(x, (40,), w, b))
    case("layer_norm", "NaN takes its row", [f64([[NAN, 1, 2], [0, 1, 2]]), None, None],
         lambda x, w, b: F.layer_norm(x, (3,), w, b))
    case("layer_norm", "no rows", [zeros(0, 3), grid(3), grid(3)],
         lambda x, w, b: F.layer_norm(x, (3,), w, b))


def layer_norm_backwards():
    for name, shape, dims, weight, _ in NORMS:
        w, _, last = norm_inputs(shape, dims, weight, False)

        def fn(x, dy, w):
            with torch.enable_grad():
                ins = [x if x.requires_grad else x.detach().requires_grad_()]
                for t in (w, None):
                    one = torch.ones(last, dtype=torch.float64)
                    t = one if t is None else t
                    ins.append(t if t.requires_grad else t.requires_grad_())
                y = F.layer_norm(ins[0], last, ins[1], ins[2])
                return torch.autograd.grad(y, ins, dy, create_graph=True)
        attrs = {} if dims == 1 else dict(dims=dims)
        case("layer_norm_backward", name, [grid(*shape), grid(*shape), w], fn,
             attrs=attrs, check=small(shape))


def generate():
    layer_norms()
    layer_norm_backwards()
