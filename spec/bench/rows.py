# spec/bench/rows.py: PyTorch's side of the benchmarks: the rows of rows.lua.
#
#   python3 spec/bench/rows.py [--device cuda] [--threads n] name ... | -
#
# Names, answers and the way of timing are those of rows.lua.

import argparse
import gc
import math
import platform
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--threads", type=int)
parser.add_argument("names", nargs="*")
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)
device = args.device
on_gpu = device.startswith("cuda")
torch.backends.cudnn.benchmark = True


def synchronise():
    if on_gpu:
        torch.cuda.synchronize()


def rand(*shape):
    return torch.rand(*shape, device=device)


def randn(*shape):
    return torch.randn(*shape, device=device)


def leaf(*shape):
    return randn(*shape).requires_grad_()


rows = {}      # name -> function that gives the function to time
enqueued = {}  # name -> runs, as in rows.lua

# ---- products, convolutions: which float ---------------------------------------------
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
          "f16": torch.float16}


def use_kind(kind):
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    torch.backends.cudnn.allow_tf32 = kind == "tf32"
    return DTYPES[kind]


def product(m, n, k, kind, batch=None):
    def make():
        dtype = use_kind(kind)
        lead = () if batch is None else (batch,)
        a, b = randn(*lead, m, k).to(dtype), randn(*lead, k, n).to(dtype)
        return lambda: a @ b
    return make


def conv(name, N, C, H, K, k, stride, pad, kind, nhwc):
    def tensors():
        dtype = use_kind(kind)
        x, w = randn(N, C, H, H).to(dtype), (randn(K, C, k, k) * 0.05).to(dtype)
        if nhwc:
            x = x.contiguous(memory_format=torch.channels_last)
            w = w.contiguous(memory_format=torch.channels_last)
        return x, w

    def forward(relu=False):
        x, w = tensors()
        if relu:
            return lambda b=randn(K).to(w.dtype): F.relu(F.conv2d(x, w, b, stride, pad))
        return lambda: F.conv2d(x, w, None, stride, pad)

    def both():
        x, w = tensors()
        dy = torch.ones_like(F.conv2d(x, w, None, stride, pad))
        x, w = x.requires_grad_(), w.requires_grad_()

        def run():
            y = F.conv2d(x, w, None, stride, pad)
            return torch.autograd.grad(y, (x, w), dy)
        return run
    rows[name], rows[name + "_fwdbwd"] = forward, both
    rows[name + "_relu"] = lambda: forward(True)


# ---- networks ------------------------------------------------------------------------
def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    ).to(device), (1, 28, 28)


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                         nn.Linear(128, 10)).to(device), (784,)


def capture(step):
    """The step in a CUDA graph, as PyTorch's documentation has it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def training(network, batch, kind, graph=False):
    def make():
        use_kind("f32")
        torch.backends.cudnn.allow_tf32 = kind == "tf32"
        model, shape = network()
        x, labels = rand(batch, *shape), torch.randint(0, 10, (batch,), device=device)
        criterion = nn.CrossEntropyLoss()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def run():
            optimiser.zero_grad(set_to_none=True)
            criterion(model(x), labels).backward()
            optimiser.step()
        return capture(run) if graph else run
    return make


def inference(network, batch):
    def make():
        use_kind("f32")
        model, shape = network()
        x = rand(batch, *shape)
        model.eval()

        def run():
            with torch.no_grad():
                return model(x)
        return run
    return make


# ---- small operators -----------------------------------------------------------------
def small(name, make, *shape):
    rows[name] = lambda: make(randn(*shape), randn(*shape))
    rows[name + "_grad"] = lambda: make(leaf(*shape), leaf(*shape))
    enqueued[name] = enqueued[name + "_grad"] = 300


small("op_add", lambda a, b: lambda: a + b, 16)
def add_out():
    a, b, c = randn(16), randn(16), randn(16)
    return lambda: torch.add(a, b, out=c)


rows["op_add_kernel"], enqueued["op_add_kernel"] = add_out, 300
small("op_relu", lambda a, b: a.relu, 16)
small("op_sum", lambda a, b: a.sum, 16)
small("op_view", lambda a, b: lambda: a.view(4, 4), 16)
small("op_matmul4", lambda a, b: (use_kind("f32"), lambda: a.matmul(b))[1], 4, 4)


def backward_row(name, formula):
    def make():
        a, b = leaf(16), leaf(16)

        def run():
            a.grad = b.grad = None
            formula(a, b).backward()
        return run
    rows[name], enqueued[name] = make, 50


backward_row("op_forward_backward", lambda a, b: (a * b + a).relu().sum())
backward_row("op_add_backward", lambda a, b: (a + b).sum())


def add_inplace():
    a, b = torch.zeros(16, device=device), torch.zeros(16, device=device)
    return lambda: a.add_(b)


rows["op_add_inplace"] = add_inplace
rows["op_empty"] = lambda: lambda: torch.empty(16, device=device)

# ---- memory-bound operators ----------------------------------------------------------
LENGTH = 1 << 28 if on_gpu else 1 << 24
SIDE = 16384 if on_gpu else 4096


def on(name, shape, make):
    rows[name] = lambda: make(*(rand(*s) for s in shape))


def in_place(x):
    y = torch.zeros(LENGTH, device=device)
    return lambda: x.add_(y)


VECTOR, MATRIX = (LENGTH,), (SIDE, SIDE)
on("copy", [VECTOR, VECTOR], lambda x, y: lambda: y.copy_(x))
on("add", [VECTOR, VECTOR], lambda x, y: lambda: x + y)
on("add_inplace", [VECTOR], in_place)
on("relu", [VECTOR], lambda x: x.relu)
on("exp", [VECTOR], lambda x: x.exp)
on("sigmoid", [VECTOR], lambda x: x.sigmoid)
on("tanh", [VECTOR], lambda x: x.tanh)
on("gelu", [VECTOR], lambda x: lambda: F.gelu(x))
on("sum", [VECTOR], lambda x: x.sum)
on("fill", [VECTOR], lambda x: lambda: x.fill_(1.5))
on("fmod", [VECTOR, VECTOR], lambda x, y: (lambda z: lambda: x.fmod(z))(y + 0.1))
rows["randperm"] = lambda: lambda: torch.randperm(1 << 20, device=device)
on("randn", [VECTOR], lambda x: lambda: x.normal_())
on("uniform", [VECTOR], lambda x: lambda: x.uniform_())
on("sum_dim0", [MATRIX], lambda x: lambda: x.sum(0))
on("sum_dim1", [MATRIX], lambda x: lambda: x.sum(1))
on("max_dim1", [MATRIX], lambda x: lambda: x.max(1))
on("argmax_dim0", [MATRIX], lambda x: lambda: x.argmax(0))
on("cumsum_dim1", [MATRIX], lambda x: lambda: x.cumsum(1))
on("transpose", [MATRIX], lambda x: lambda: x.t().contiguous())
on("add_row", [MATRIX, (SIDE,)], lambda x, r: lambda: x + r)
on("add_column", [MATRIX, (SIDE, 1)], lambda x, c: lambda: x + c)
THOUSAND = (LENGTH // 1024 if on_gpu else 8192, 1024)
on("softmax_1024", [THOUSAND], lambda x: lambda: x.softmax(1))
on("softmax_32768", [(8192, 32768)], lambda x: lambda: x.softmax(1))


# ---- fused operators: PyTorch's separate ones, and torch.compile ----------------------
def chain(x):
    return F.silu(x * 1.5 + 0.25) * torch.tanh(x) - x


def compiled_chain():
    x, f = rand(*VECTOR), torch.compile(chain)
    return lambda: f(x)


def chain_fwdbwd():
    x = rand(*VECTOR).requires_grad_()
    dy = torch.ones_like(x)
    return lambda: torch.autograd.grad(chain(x), x, dy)


on("fuse_chain", [VECTOR], lambda x: lambda: chain(x))
rows["fuse_chain_compiled"] = compiled_chain
on("fuse_chain_small", [(1024,)], lambda x: lambda: chain(x))
enqueued["fuse_chain_small"] = 300
rows["fuse_chain_fwdbwd"] = chain_fwdbwd
on("fuse_norm", [THOUSAND, (1024,), (1024,)],
   lambda x, w, b: lambda: F.gelu(F.layer_norm(x, (1024,), w, b)))

# ---- rows of a matrix -----------------------------------------------------------------
on("layernorm", [THOUSAND, (1024,), (1024,)],
   lambda x, w, b: lambda: F.layer_norm(x, (1024,), w, b))
on("permute_nchw_nhwc", [(256, 64, 128, 128)],
   lambda x: lambda: x.permute(0, 2, 3, 1).contiguous())


# ---- sorting and selecting: fewer elements, since they take longer -------------------
MANY = 1 << 26 if on_gpu else 1 << 20
on("sort", [(MANY,)], lambda x: lambda: x.sort(stable=True))
on("sort_1024", [(MANY // 1024, 1024)], lambda x: lambda: x.sort(dim=1, stable=True))
on("sort_65536", [(MANY // 65536, 65536)], lambda x: lambda: x.sort(dim=1, stable=True))


def integers(low, high, n):
    return torch.randint(low, high, (n,), device=device)


rows["sort_int64"] = lambda: (
    lambda x: lambda: x.sort(stable=True))(integers(0, 1 << 30, MANY))
on("topk", [VECTOR], lambda x: lambda: x.topk(64))
on("topk_rows", [MATRIX], lambda x: lambda: x.topk(50, 1))
rows["unique"] = lambda: (lambda x: lambda: x.unique())(integers(0, MANY // 16, MANY))
on("cumsum", [VECTOR], lambda x: lambda: x.cumsum(0))
on("cummax_dim1", [MATRIX], lambda x: lambda: x.cummax(1))


def scatter(make, name):
    def row():
        n = LENGTH // 4
        x, src, index = torch.zeros(n, device=device), rand(n), make(n)
        return lambda: getattr(x, name)(0, index, src)
    return row


def in_order(n):
    return torch.arange(n, device=device)


def shuffled(n):
    return torch.randperm(n, device=device)


rows["scatter"] = scatter(shuffled, "scatter")
rows["scatter_ordered"] = scatter(in_order, "scatter")
rows["scatter_add"] = scatter(lambda n: integers(0, n // 16, n), "scatter_add")
rows["scatter_add_ordered"] = scatter(in_order, "scatter_add")


def index_rows(add):
    def row():
        x, index = rand(LENGTH // 1024, 1024), shuffled(LENGTH // 1024)
        if not add:
            return lambda: x.index_select(0, index)
        src = rand(LENGTH // 1024, 1024)
        return lambda: x.index_add(0, index, src)
    return row


rows["index_select"], rows["index_add"] = index_rows(False), index_rows(True)
on("masked_select", [VECTOR],
   lambda x: (lambda mask: lambda: x.masked_select(mask))(x > 0.5))


def embedding():
    weight = rand(50304, 1024)
    index = torch.randint(0, 50304, (65536,), device=device)
    return lambda: F.embedding(index, weight)


def cross_entropy(backward):
    def make():
        x = randn(8192, 50304).requires_grad_(backward)
        labels = torch.randint(0, 50304, (8192,), device=device)
        if backward:
            return lambda: torch.autograd.grad(F.cross_entropy(x, labels), x)
        return lambda: F.cross_entropy(x, labels)
    return make


rows["embedding"] = embedding
rows["xent"], rows["xent_fwdbwd"] = cross_entropy(False), cross_entropy(True)

EINSUMS = {
    "einsum_attention": ("bhqd,bhkd->bhqk", [(8, 16, 256, 64)] * 2, [(4, 8, 128, 64)] * 2),
    "einsum_chain": ("ij,jk,kl->il", [(4096, 32), (32, 4096), (4096, 32)],
                     [(1024, 32), (32, 1024), (1024, 32)]),
    "einsum_small": ("ij,kj->ik", [(16, 16)] * 2, [(16, 16)] * 2)}
for name, (equation, *shapes) in EINSUMS.items():
    on(name, shapes[0 if on_gpu else 1],
       lambda *x, equation=equation: lambda: torch.einsum(equation, *x))

# ---- products and the rest -----------------------------------------------------------
for n in (256, 1024, 2048, 4096, 8192):
    for kind in DTYPES:
        rows[f"matmul_{n}_{kind}"] = product(n, n, n, kind)
rows["bmm"] = product(128, 128, 64, "f32", 32)
rows["bmm_512x256_f32"] = product(256, 256, 256, "f32", 512)
on("linear", [(64, 784), (256, 784)], lambda x, w: lambda: F.linear(x, w))


def linear_gelu():
    x, w, b = (randn(*s).bfloat16() for s in ((4096, 4096), (4096, 4096), (4096,)))
    return lambda: F.gelu(F.linear(x, w, b))


rows["linear_gelu_bf16"] = linear_gelu
for suffix, last in (("", False), ("_nhwc", True)):
    conv("conv_small" + suffix, 32, 16, 28, 32, 3, 1, 1, "f32", last)
    conv("conv_large" + suffix, 16, 64, 56, 64, 3, 1, 1, "f32", last)
conv("conv_small_bf16", 32, 16, 28, 32, 3, 1, 1, "bf16", True)
conv("conv_large_bf16", 16, 64, 56, 64, 3, 1, 1, "bf16", True)
for shape, sizes in {
        "N64C64H56K64k3s1": (64, 64, 56, 64, 3, 1, 1),
        "N64C256H14K256k3s1": (64, 256, 14, 256, 3, 1, 1),
        "N64C3H224K64k7s2": (64, 3, 224, 64, 7, 2, 3),
        "N64C256H56K64k1s1": (64, 256, 56, 64, 1, 1, 0),
        "N512C1H28K32k5s1": (512, 1, 28, 32, 5, 1, 0)}.items():
    for kind in ("f32", "tf32", "bf16"):
        conv(f"conv_{shape}_{kind}", *sizes, kind, kind == "bf16")
for batch in (64, 512, 4096):
    rows[f"cnn_train_{batch}"] = training(cnn, batch, "tf32" if on_gpu else "f32")
    rows[f"mlp_train_{batch}"] = training(mlp, batch, "f32")
    rows[f"cnn_graph_{batch}"] = training(cnn, batch, "tf32", True)
    rows[f"mlp_graph_{batch}"] = training(mlp, batch, "f32", True)
rows["cnn_infer_64"], rows["mlp_infer_64"] = inference(cnn, 64), inference(mlp, 64)

# ---- optimisers ----------------------------------------------------------------------
def parameters(count, *shape):
    made = [torch.zeros(*shape, device=device).requires_grad_() for _ in range(count)]
    for p in made:
        p.grad = torch.ones_like(p)
    return made


def adam(count, *shape):
    return lambda: torch.optim.Adam(parameters(count, *shape), fused=on_gpu).step


def clip_norm():
    made = parameters(800, 64, 64)
    return lambda: nn.utils.clip_grad_norm_(made, 1)


rows["adam_800"], rows["adam_large"] = adam(800, 64, 64), adam(4, 1 << 26)
rows["clip_norm_800"] = clip_norm


# ---- copies between host and device --------------------------------------------------
def copies(pinned, to_device):
    def make():
        host, there = torch.ones(1 << 26), torch.zeros(1 << 26, device=device)
        if pinned:
            host = host.pin_memory()
        return (lambda: there.copy_(host)) if to_device else (lambda: host.copy_(there))
    return make


for pinned in (False, True):
    suffix = "pinned" if pinned else "pageable"
    rows["h2d_" + suffix] = copies(pinned, True)
    rows["d2h_" + suffix] = copies(pinned, False)

# ---- timing: as in rows.lua ----------------------------------------------------------
BLOCK, BLOCKS, WARM_UP = 0.03, 3, 0.06  # seconds, how many, seconds


def time_of(run, n, only_enqueue=False):
    synchronise()
    start = time.perf_counter()
    for _ in range(n):
        run()
    if not only_enqueue:
        synchronise()
    seconds = time.perf_counter() - start
    synchronise()
    return seconds


last = {}


def prepare(name):
    global last
    last = {}
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    run = rows[name]()
    queue = enqueued.get(name) if on_gpu else None
    start, n = time.perf_counter(), 1
    seconds = time_of(run, 1)
    while time.perf_counter() - start < WARM_UP:
        if seconds < 0.01:
            n *= 2
        seconds = time_of(run, n)
    count = queue or max(1, math.ceil(BLOCK * n / seconds))
    last = {"name": name, "run": run, "count": count, "queue": queue is not None}


def answer(name):
    global last
    if name == "about":
        versions = f"PyTorch {torch.__version__}, Python {platform.python_version()}"
        if on_gpu:
            versions += (f", CUDA {torch.version.cuda}, cuDNN "
                         f"{torch.backends.cudnn.version()}, "
                         f"{torch.cuda.get_device_name()}")
        print("about - -", versions, flush=True)
        return
    if name not in rows:
        last = {}
        print(name, "- - PyTorch has nothing of the kind", flush=True)
        return
    try:
        if last.get("name") != name:
            prepare(name)
        time_of(last["run"], 1)
        seconds = statistics.median(
            time_of(last["run"], last["count"], last["queue"]) / last["count"]
            for _ in range(BLOCKS))
        print(f"{name} {seconds:.9g} s", flush=True)
    except Exception as problem:  # a row that fails is one without a figure
        last = {}
        print(name, "- -", type(problem).__name__, " ".join(str(problem).split()),
              flush=True)


for name in args.names:
    if name == "-":
        for line in sys.stdin:
            answer(line.strip())
    else:
        answer(name)
