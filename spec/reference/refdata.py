# spec/reference/refdata.py: one reference case (inputs, outputs, gradients) and its Lua text.
"""Inputs are Lua numbers, or float64 tensors whose values float32 holds exactly (so that every float
dtype starts from the same numbers), or integer and bool tensors in their own dtype.
Outputs and gradients are computed in float64 by PyTorch and written with all digits.

An expected number that PyTorch leaves open is written as `false`, and the harness takes
any value there: a gradient where the input or the output is NaN, and a NaN gradient of
finite inputs (PyTorch's infinity times zero)."""

import contextlib
import math
import os

import numpy as np
import torch

CASES = {}  # op name -> list of cases
ROOT = os.path.dirname(os.path.abspath(__file__))
DTYPE_NAMES = {
    torch.float64: None,
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}

random = np.random.RandomState()


def start(seed, drawn=0):
    """Numbers of this seed, as if so many words of 32 bits had been drawn."""
    random.seed(seed)
    if drawn:
        random.bytes(4 * drawn)


@contextlib.contextmanager
def aside(seed=None):
    """What is drawn within, of a seed or going on, does not change what comes after: for
    cases put between older ones."""
    state = random.get_state()
    if seed is not None:
        random.seed(seed)
    yield
    random.set_state(state)


def grid(*shape, low=-3.0, high=3.0, step=1 / 64):
    """Uniform multiples of step: short decimals, exact in float32."""
    n = int(round((high - low) / step))
    a = low + step * random.randint(0, n + 1, size=shape)
    return torch.tensor(a, dtype=torch.float64).reshape(shape)


def apart(*shape, gap=1 / 8, low=0):
    """Distinct values in random order: no ties, and steps of a difference quotient
    do not change the order."""
    n = int(np.prod(shape)) if shape else 1
    a = (random.permutation(n) - n // 2 + low) * gap + 1 / 64
    return torch.tensor(a, dtype=torch.float64).reshape(shape)


def f64(values):
    a = torch.tensor(np.array(values, dtype=np.float32).astype(np.float64))
    return a


def integers(low, high, *shape, dtype=torch.int64):
    return torch.tensor(random.randint(low, high + 1, size=shape), dtype=dtype)


def as_list(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def leaves(inputs):
    """The tensors among the inputs, lists flattened."""
    for x in inputs:
        if isinstance(x, list):
            yield from x
        elif torch.is_tensor(x):
            yield x


def case(op, name, inputs, fn, attrs=None, check=False, grad=True, exact=False,
         open_nan=False, keep_nan_gradient=False, open_at=()):
    """Add a case. fn(*inputs) is the value by PyTorch. check: the point is smooth, and
    the harness also takes difference quotients there. grad=False: no gradient flows.
    exact: compare without tolerance. open_nan: a NaN result is left open. open_at:
    values of inputs where the gradient is left open."""
    work = [
        [t.clone() for t in x] if isinstance(x, list) else
        x.clone() if torch.is_tensor(x) else x
        for x in inputs
    ]
    floats = [t for t in leaves(work) if t.dtype == torch.float64]
    if grad:
        for t in floats:
            t.requires_grad_()
    outputs = as_list(fn(*work))
    cotangents, gradients = None, None
    float_out = [y for y in outputs if y.dtype == torch.float64 and y.requires_grad]
    if grad and floats and float_out:
        # never 0: times a float32 overflow it is NaN, where float64 knows better
        cotangents = [
            grid(*y.shape, low=-15 / 16, high=1, step=1 / 8)
            if y.dtype == torch.float64 and y.requires_grad else None
            for y in outputs
        ]
        found = torch.autograd.grad(
            float_out, floats, [c for c in cotangents if c is not None],
            allow_unused=True)
        gradients = []
        aligned = all(y.shape == outputs[0].shape for y in outputs)
        for t, g in zip(floats, found):
            g = torch.zeros_like(t) if g is None else g
            unsaid = torch.isnan(t.detach())
            if not keep_nan_gradient:
                unsaid = unsaid | torch.isnan(g)
            for value in open_at:
                unsaid = unsaid | (t.detach() == value)
            if aligned and len(outputs) == 1 and outputs[0].shape == t.shape:
                unsaid = unsaid | torch.isnan(outputs[0].detach())
            gradients.append((g.detach(), unsaid))
    outs = []
    for y in outputs:
        y = y.detach()
        unsaid = torch.isnan(y) if open_nan and y.dtype == torch.float64 else None
        outs.append((y, unsaid))
    CASES.setdefault(op, []).append(dict(
        name=name, inputs=[
            [t.detach() for t in x] if isinstance(x, list) else
            x.detach() if torch.is_tensor(x) else x for x in work],
        attrs=attrs or {}, outputs=outs, cotangents=cotangents, gradients=gradients,
        check=check, exact=exact))


def number(x):
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return "math.mininteger" if x == -2 ** 63 else str(x)
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    if x == int(x) and abs(x) < 1e15:
        return "-0.0" if x == 0 and math.copysign(1, x) < 0 else str(int(x))
    text = repr(x)
    if text.startswith("0."):
        return text[1:]
    return "-" + text[2:] if text.startswith("-0.") else text


def tensor_text(t, open_at=None):
    flat = t.reshape(-1).tolist()
    opened = open_at.reshape(-1).tolist() if open_at is not None else [False] * len(flat)
    data = ",".join("false" if o else number(v) for v, o in zip(flat, opened))
    if t.dtype == torch.bool:
        data = ",".join("1" if v else "0" for v in flat)
    name = DTYPE_NAMES[t.dtype]
    dtype = ',dtype="%s"' % name if name else ""
    return "{shape={%s}%s,data={%s}}" % (",".join(map(str, t.shape)), dtype, data)


def value_text(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, (int, float)):
        return number(v)
    if isinstance(v, str):
        return '"%s"' % v
    return "{%s}" % ",".join(value_text(x) for x in v)


def case_text(c):
    lines = ['  {name="%s"' % c["name"]]
    if c["attrs"]:
        lines.append("attrs={%s}" % ",".join(
            "%s=%s" % (k, value_text(v)) for k, v in c["attrs"].items()))
    if c["check"]:
        lines.append("check=true")
    if c["exact"]:
        lines.append("exact=true")
    ins = []
    for x in c["inputs"]:
        if x is None:
            ins.append("false")
        elif isinstance(x, (int, float)):
            ins.append(number(x))
        elif isinstance(x, list):
            ins.append("{list={%s}}" % ",\n    ".join(tensor_text(t) for t in x))
        else:
            ins.append(tensor_text(x))
    lines.append("inputs={%s}" % ",\n    ".join(ins))
    lines.append("outputs={%s}" % ",\n    ".join(tensor_text(*o) for o in c["outputs"]))
    if c["gradients"] is not None:
        lines.append("cotangents={%s}" % ",\n    ".join(
            "false" if t is None else tensor_text(t) for t in c["cotangents"]))
        lines.append("gradients={%s}" % ",\n    ".join(
            tensor_text(*g) for g in c["gradients"]))
    return ",\n   ".join(lines) + "},\n"


def write_all(folder):
    """A file for each op; those that no op is left for go."""
    for old in os.listdir(folder):
        if old.endswith(".lua"):
            os.remove(os.path.join(folder, old))
    total = 0
    for op, cases in sorted(CASES.items()):
        text = "-- spec/reference/%s.lua: written by generate.py.\n" % op
        text += "local inf, nan = math.huge, 0/0\nreturn {inf = inf, nan = nan,\n"
        text += "".join(case_text(c) for c in cases) + "}\n"
        total += len(text)
        with open(os.path.join(folder, op + ".lua"), "w") as f:
            f.write(text)
    return len(CASES), sum(map(len, CASES.values())), total
