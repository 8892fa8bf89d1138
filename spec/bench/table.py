# spec/bench/table.py: the rows of both tables: how much work each is, what limits it,
# what is asked of it.

from collections import namedtuple

# work: bytes, operations or images of one run; unit: what the table shows.
# limit: what bounds the row, as run.py measures it; flops: operations of one image.
# faster: PyTorch's time over ours, at least; share: of the limit, at least;
# like: the row whose speed it is to have, or that and the share of it; at_most: seconds;
# torch7: its figure of one thread on the machine of the baseline.
Row = namedtuple("Row", "name work unit limit faster share at_most torch7 flops like")


def row(name, work, unit, limit=None, faster=1, share=None, at_most=None, torch7=None,
        flops=None, like=None):
    if isinstance(like, str):
        like = (like, 0.95)
    return Row(name, work, unit, limit, faster, share, at_most, torch7, flops, like)


def conv_flops(N, C, H, K, k, stride, pad):
    out = (H + 2 * pad - k) // stride + 1
    return 2 * N * K * C * k * k * out * out


# Multiply-adds of one image, times two. A step takes three times as much, but for the
# first layer: the gradient of the images isn't asked for.
CNN_FIRST = 2 * 24 * 24 * 16 * 25
CNN = CNN_FIRST + 2 * (8 * 8 * 32 * 16 * 25 + 512 * 128 + 128 * 10)

MLP_FIRST = 2 * 784 * 256
MLP = MLP_FIRST + 2 * (256 * 128 + 128 * 10)


def selecting(n, limit):
    """Rows of sorting and selecting. Scatters read x, an index of int64 and src, and
    write y twice."""
    def memory(name, bytes_, share=None):
        return row(name, bytes_, "GB/s", limit, share=share)

    m = n // 4
    return [row(name, 1, "us") for name in (
        "sort", "sort_1024", "sort_65536", "sort_int64", "topk", "topk_rows",
        "unique")] + [
        memory("cumsum", 8 * n, 0.8), memory("cummax_dim1", 16 * n),
        memory("scatter", 24 * m), memory("scatter_ordered", 24 * m, 0.8),
        memory("scatter_add", 24 * m), memory("scatter_add_ordered", 28 * m),
        memory("index_select", 8 * n, 0.8), memory("index_add", 20 * n),
        memory("masked_select", 7 * n, 0.8)]


def products_by_name():
    return [row(name, 1, "us") for name in (
        "einsum_attention", "einsum_chain", "einsum_small")]


def cpu_rows():
    def op(name, torch7=None):
        return row(name, 1, "ns", faster=4, torch7=torch7)

    def product(name, m, n, k, batch=1, torch7=None):
        return row(name, 2 * m * n * k * batch, "GFLOP/s", "fma", torch7=torch7)

    def memory(name, elements, bytes_, share=None, torch7=None):
        return row(name, elements * bytes_, "GB/s", "memory", 1, share, torch7=torch7)

    def images(name, flops, faster, torch7):
        return row(name, 64, "images/s", "fma", faster, torch7=torch7, flops=flops)

    small = conv_flops(32, 16, 28, 32, 3, 1, 1)
    large = conv_flops(16, 64, 56, 64, 3, 1, 1)
    N, M = 1 << 24, 8192 * 1024
    return [
        op("op_add", 343), op("op_add_grad"), op("op_relu", 1538), op("op_relu_grad"),
        op("op_matmul4", 2641), op("op_matmul4_grad"), op("op_view", 4058),
        op("op_view_grad"), op("op_sum", 223), op("op_sum_grad"),
        op("op_add_inplace", 2234), op("op_empty", 309), op("op_forward_backward"),
        product("matmul_256_f32", 256, 256, 256, torch7=186),
        product("matmul_1024_f32", 1024, 1024, 1024, torch7=176),
        product("matmul_2048_f32", 2048, 2048, 2048, torch7=183),
        product("matmul_1024_bf16", 1024, 1024, 1024)._replace(limit=None),
        product("linear", 64, 256, 784, torch7=146),
        product("bmm", 128, 128, 64, 32),
        row("conv_small", small, "GFLOP/s", "fma", torch7=68),
        row("conv_small_nhwc", small, "GFLOP/s", "fma"),
        row("conv_small_fwdbwd", 3 * small, "GFLOP/s", "fma", torch7=64),
        row("conv_large", large, "GFLOP/s", "fma", torch7=114),
        row("conv_large_nhwc", large, "GFLOP/s", "fma"),
        row("conv_large_fwdbwd", 3 * large, "GFLOP/s", "fma", torch7=108),
        row("conv_small_bf16", small, "GFLOP/s"),
        row("conv_large_bf16", large, "GFLOP/s"),
        row("conv_small_relu", small, "GFLOP/s", "fma"),
        row("conv_large_relu", large, "GFLOP/s", "fma"),
        memory("copy", N, 8), memory("add_inplace", N, 12),
        memory("add", N, 12), memory("relu", N, 8, torch7=1.4),
        memory("exp", N, 8, 0.8, 4.2), memory("sigmoid", N, 8, 0.8, 3.4),
        memory("tanh", N, 8, 0.8, 0.45), memory("softmax_1024", M, 8, 0.8, 1.4),
        memory("layernorm", M, 8, 0.8, 1.2), memory("sum", N, 4, None, 5.7),
        memory("sum_dim0", N, 4, None, 10)._replace(
            like=("sum_dim1", 0.95)),
        memory("sum_dim1", N, 4, None, 5.6),
        memory("max_dim1", N, 4, 0.8), memory("transpose", N, 8, 0.6, 5.0),
        memory("add_row", N, 8), memory("fill", N, 4), memory("cumsum_dim1", N, 8),
        memory("fmod", N, 12), memory("randperm", 1 << 20, 8),
        memory("fuse_chain", N, 8), memory("fuse_norm", M, 8),
        row("fuse_chain_small", 1, "ns"), row("fuse_again", 1, "ns"),
        images("cnn_train_64", 3 * CNN - CNN_FIRST, 1.5, 3778),
        images("cnn_infer_64", CNN, 1.5, 9117),
        images("mlp_train_64", 3 * MLP - MLP_FIRST, 1.3, 69150),
        images("mlp_infer_64", MLP, 1.5, 275100),
    ] + selecting(N, "memory") + products_by_name()


def cuda_rows():
    def op(name, share):
        return row(name, 1, "us", "launch", share=share)

    def memory(name, gib):
        return row(name, gib * (1 << 30), "GB/s", "copy", share=0.9)

    rows = [op("op_" + name, 1 / 1.3) for name in ("add", "relu", "matmul4", "sum")]
    rows += [row("op_view", 1, "us"), row("op_empty", 1, "us"),
             row("op_add_kernel", 1, "us", like=("op_add", 1 / 1.2)),
             op("op_add_grad", 1 / 1.5),
             row("op_add_backward", 1, "us"), row("op_forward_backward", 1, "us")]
    rows += [memory(*r) for r in (
        ("copy", 2), ("add", 3), ("relu", 2), ("exp", 2), ("sigmoid", 2), ("gelu", 2),
        ("sum", 1), ("sum_dim0", 1), ("sum_dim1", 1), ("max_dim1", 1),
        ("argmax_dim0", 1), ("transpose", 2), ("permute_nchw_nhwc", 2), ("add_row", 2),
        ("add_column", 2), ("softmax_1024", 2), ("layernorm", 2), ("softmax_32768", 2),
        ("randn", 1), ("uniform", 1), ("fill", 1), ("cumsum_dim1", 2),
        ("embedding", 0.5))]
    rows += [memory("fuse_chain", 2)._replace(faster=4),
             memory("fuse_chain_compiled", 2), row("fuse_chain_fwdbwd", 1, "us"),
             memory("fuse_norm", 2), row("fuse_chain_small", 1, "us"),
             row("fuse_second", 1, "us", at_most=100e-3),
             row("fuse_disk", 1, "us", at_most=1e-3),
             row("fuse_again", 1, "us", at_most=1e-3)]
    rows += [row("fuse_first" + kind, 1, "us", at_most=100e-3)
             for kind in ("", "_f16", "_bf16", "_norm")]
    logits = 8192 * 50304 * 4 / (1 << 30)
    rows += [memory("xent", logits), memory("xent_fwdbwd", 3 * logits)]
    for n in (1024, 4096, 8192):
        for kind in ("f32", "tf32", "bf16", "f16"):
            rows.append(row(f"matmul_{n}_{kind}", 2 * n ** 3, "TFLOP/s", kind, 0.98))
    rows += [row("matmul_256_f32", 2 * 256 ** 3, "TFLOP/s", "f32"),
             row("matmul_256_bf16", 2 * 256 ** 3, "TFLOP/s", "bf16"),
             row("linear", 2 * 64 * 256 * 784, "TFLOP/s", "f32")]
    rows += [row("bmm_512x256_f32", 512 * 2 * 256 ** 3, "TFLOP/s", "f32", 0.98),
             row("linear_gelu_bf16", 2 * 4096 ** 3, "TFLOP/s", "bf16", 0.98)]
    for shape, sizes in (("N64C64H56K64k3s1", (64, 64, 56, 64, 3, 1, 1)),
                         ("N64C256H14K256k3s1", (64, 256, 14, 256, 3, 1, 1)),
                         ("N64C3H224K64k7s2", (64, 3, 224, 64, 7, 2, 3)),
                         ("N64C256H56K64k1s1", (64, 256, 56, 64, 1, 1, 0)),
                         ("N512C1H28K32k5s1", (512, 1, 28, 32, 5, 1, 0))):
        work = conv_flops(*sizes)
        for kind in ("f32", "tf32", "bf16"):
            rows += [row(f"conv_{shape}_{kind}", work, "TFLOP/s", kind),
                     row(f"conv_{shape}_{kind}_fwdbwd", 3 * work, "TFLOP/s", kind),
                     row(f"conv_{shape}_{kind}_relu", work, "TFLOP/s", kind)]
    rows += [row("adam_800", 1, "us"), row("clip_norm_800", 1, "us"),
             memory("adam_large", 7)]
    rows += [row(name, 1 << 28, "GB/s") for name in (
        "h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned")]
    for batch in (64, 512, 4096):
        rows.append(row(f"cnn_train_{batch}", 1, "us",
                        at_most=500e-6 if batch == 64 else None))
    for batch in (64, 512):
        rows.append(row(f"mlp_train_{batch}", 1, "us",
                        at_most=300e-6 if batch == 64 else None))
    for batch in (64, 512, 4096):
        rows.append(row(f"cnn_graph_{batch}", 1, "us",
                        at_most=120e-6 if batch == 64 else None))
    for batch in (64, 512):
        rows.append(row(f"mlp_graph_{batch}", 1, "us",
                        at_most=50e-6 if batch == 64 else None))
    return rows + selecting(1 << 28, "copy") + products_by_name()
