# spec/bench/run.py: runs the rows in turn here and in PyTorch, writes the table.
#
#   python3 spec/bench/run.py [--device cuda] [--rounds n] [--only pattern] [--out file]
#
# In the root of the tree or of the bundle. PYTHON names the interpreter that has torch.

import argparse
import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import table  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--rounds", type=int, help="default 5, on the GPU 3")
parser.add_argument("--only", default="", help="a pattern of row names")
parser.add_argument("--out", help="default spec/bench/RESULTS[-cpu].md")
parser.add_argument("--host", default="build/mtlua")
parser.add_argument("--threads", default="1,2", help="of the CPU rows")
args = parser.parse_args()
on_gpu = args.device.startswith("cuda")
rounds = args.rounds or (3 if on_gpu else 5)
PATIENCE = 120  # seconds for one answer
UNITS = {"ns": 1e9, "us": 1e6}
SCALE = {"GB/s": 1e9, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "images/s": 1}

# PyTorch's own best: a warm heap, no choice of kernels inherited.
FAIR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "268435456"}


def environment(threads, extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env.update(extra)
    if threads:
        env.update(OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
        if threads > 1:
            env["OMP_PROC_BIND"] = "true"
    return env


def output_of(command, **options):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, **options)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class Side:
    """One of the two programs: asked for a row, it answers with a line."""

    def __init__(self, command, threads, extra):
        self.command = command + ["--device", args.device, "-"]
        if threads:
            self.command[-1:-1] = ["--threads", str(threads)]
        self.env = environment(threads, extra)
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self.command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rest = b""

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def line(self, until):
        while b"\n" not in self.rest:
            pipe = self.process.stdout
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            got = os.read(pipe.fileno(), 65536)
            if not got:
                return None
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def ask(self, name):
        """Gives the seconds (None: none) and the remark."""
        try:
            if self.process is None:
                self.start()
            self.process.stdin.write(name.encode() + b"\n")
            self.process.stdin.flush()
            until = time.monotonic() + PATIENCE
            line = self.line(until)
            while line is not None and not line.startswith(name + " "):
                line = self.line(until)
        except OSError:
            line = None
        if line is None:
            code = self.process.poll() if self.process else None
            self.stop()
            return None, "no answer" if code is None else f"ended with status {code}"
        parts = line.split(" ", 3)
        remark = parts[3] if len(parts) > 3 else ""
        return (None if parts[1] == "-" else float(parts[1])), remark


def build_limits(folder):
    """The program of limits.c or limits.cu; None where there is no compiler."""
    program = os.path.join(folder, "limits")
    if on_gpu:
        source, nvcc = "limits.cu", shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        build = [nvcc, "-O3", "-arch=native"]
    else:
        source, build = "limits.c", [shutil.which("gcc") or "cc", "-O3", "-fopenmp",
                                     "-march=native", "-mprefer-vector-width=512"]
    built = output_of(build + ["-o", program, os.path.join(HERE, source)])
    return None if built is None else program


def measured_limits(program, threads):
    """What that program prints, as a dict."""
    text = program and output_of([program], env=environment(threads, {})) or ""
    return {k: float(v) for k, v in (line.split() for line in text.splitlines())}


def figure(row, seconds):
    """The seconds of a run as the row's unit shows them."""
    if seconds is None:
        return None
    if row.unit in UNITS:
        return seconds * UNITS[row.unit]
    return row.work / seconds / SCALE[row.unit]


class Result:
    def __init__(self, row, times, remarks):
        self.row, self.remarks = row, remarks
        self.ours, self.theirs = (statistics.median(t) if t else None for t in times)
        self.limit = self.share = None
        self.ratio = self.theirs / self.ours if self.ours and self.theirs else None
        self.best = min(times[1]) / min(times[0]) if all(times) else None
        self.reference = None  # the row whose speed this one is to have
        pairs = [b / a for a, b in zip(*times)]
        self.spread = (min(pairs), max(pairs)) if pairs else None

    def set_limit(self, limits):
        row = self.row
        limit = limits.get(row.limit)
        if limit and row.flops:
            limit = limit * 1e9 / row.flops
        self.limit = limit
        ours = figure(row, self.ours)
        if limit and ours:
            self.share = limit / ours if row.unit in UNITS else ours / limit

    def misses(self):
        row, out = self.row, []
        if self.ours is None:
            return ["not measured"]
        if self.ratio is not None and self.ratio < row.faster:
            out.append(f"ratio {self.ratio:.2f} < {row.faster:g}")
        if row.share and self.share is not None and self.share < row.share:
            out.append(f"{self.share:.0%} of the limit < {row.share:.0%}")
        other = self.reference
        if other and other.ours and other.ours < row.like[1] * self.ours:
            out.append(f"{other.ours / self.ours:.0%} of the speed of {other.row.name}")
        if row.at_most and self.ours > row.at_most:
            out.append(f"{self.ours * 1e6:.0f} us > {row.at_most * 1e6:.0f} us")
        return out


def measure(rows, sides):
    results = []
    for row in rows:
        times, remarks = ([], []), []
        for _ in range(rounds):
            for i, side in enumerate(sides):
                if side is None or (times[i] is None):
                    continue
                seconds, remark = side.ask(row.name)
                if remark and remark not in remarks:
                    remarks.append(remark)
                if seconds is None:
                    times = tuple(None if j == i else t for j, t in enumerate(times))
                else:
                    times[i].append(seconds)
        result = Result(row, tuple(t or [] for t in times), remarks)
        results.append(result)
        ratio = f"{result.ratio:6.2f}" if result.ratio else "     -"
        print(f"{row.name:32} {short(figure(row, result.ours)):>9} "
              f"{short(figure(row, result.theirs)):>9} {row.unit:9}{ratio}", flush=True)
    return results


def short(x):
    if x is None:
        return "-"
    return f"{x:,.0f}" if x >= 1000 else f"{x:.4g}"


def lines_of(results):
    torch7 = any(r.row.torch7 for r in results)
    yield ("| row | unit | ours | PyTorch | ratio | lowest, highest | of the best |"
           " limit | share |" + (" torch7 |" if torch7 else "") + " goal |")
    yield "|---|---|---|---|---|---|---|---|---|" + ("---|" if torch7 else "") + "---|"
    for r in results:
        row = r.row
        cells = [row.name, row.unit, short(figure(row, r.ours)),
                 short(figure(row, r.theirs)), f"{r.ratio:.2f}" if r.ratio else "-",
                 "{:.2f}, {:.2f}".format(*r.spread) if r.spread else "-",
                 f"{r.best:.2f}" if r.best else "-", short(r.limit),
                 f"{r.share:.0%}" if r.share else "-"]
        if torch7:
            cells.append(short(row.torch7))
        unknown = r.ratio is None and not (row.at_most or row.share)
        cells.append("missed" if r.misses() else "-" if unknown else "met")
        yield "| " + " | ".join(cells) + " |"


def machine():
    name = "unknown processor"
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    text = f"{name}, {len(os.sched_getaffinity(0))} threads usable"
    gpu = on_gpu and output_of(["nvidia-smi", "--query-gpu=name,driver_version",
                                "--format=csv,noheader"])
    return text + (f"; {gpu.splitlines()[0]}" if gpu else "")


def commit():
    head = output_of(["git", "rev-parse", "--short=12", "HEAD"])
    if head:
        changed = output_of(["git", "status", "--porcelain", "-uno"])
        return head + (" with changes" if changed else "")
    try:
        with open("build/commit") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def python_with_torch():
    for name in (os.environ.get("PYTHON"), "python3", "/usr/bin/python3"):
        if name and output_of([name, "-c", "import torch"]) is not None:
            return name
    return None


def main(folder):
    load, began, python = os.getloadavg()[0], time.time(), python_with_torch()
    rows = [r for r in (table.cuda_rows() if on_gpu else table.cpu_rows())
            if re.search(args.only, r.name)]
    out, misses, notes, versions = [], [], [], []
    program = build_limits(folder)
    for threads in [None] if on_gpu else [int(n) for n in args.threads.split(",")]:
        limits = measured_limits(program, threads)
        sides = [Side([args.host, f"{HERE}/rows.lua"], threads, {}),
                 python and Side([python, f"{HERE}/rows.py"], threads, FAIR)]
        if not versions:
            versions = [side.ask("about")[1] for side in sides if side]
        print(f"-- {threads or args.device}: {limits}", flush=True)
        results = measure(rows, sides)
        for side in sides:
            if side:
                side.stop()
        again = measured_limits(program, threads)
        for name, value in again.items():
            best = min if name == "launch" else max
            limits[name] = best(value, limits.get(name, value))
        if on_gpu:
            copies = [figure(r.row, t) for r in results if r.row.name == "copy"
                      for t in (r.ours, r.theirs) if t]
            limits["copy"] = max(copies, default=None)
            for kind in ("f32", "tf32", "bf16", "f16"):
                rates = [figure(r.row, t) for r in results for t in (r.ours, r.theirs)
                         if t and r.row.limit == kind and "matmul_" in r.row.name]
                limits[kind] = max(rates, default=None)
            if limits.get("fma"):
                limits["f32"] = limits["fma"]
        else:
            limits["memory"] = max(limits.get("copy", 0), limits.get("add", 0)) or None
        by_name = {r.row.name: r for r in results}
        for r in results:
            r.set_limit(limits)
            r.reference = by_name.get(r.row.like[0]) if r.row.like else None
        where = args.device if on_gpu else f"{threads} thread" + "s" * (threads > 1)
        out += [f"## {where}", "", "Limits: " + ", ".join(
            f"{k} {short(v)}" for k, v in limits.items() if v) + ".", ""]
        out += list(lines_of(results)) + [""]
        for r in results:
            if r.misses():
                misses.append(f"- {where}, {r.row.name}: {'; '.join(r.misses())}")
            notes += [f"- {r.row.name}: {text}" for text in r.remarks
                      if f"- {r.row.name}: {text}" not in notes]
    head = [
        f"# Benchmarks on {'the GPU' if on_gpu else 'the CPU'}", "",
        "Written by `make bench" + (" DEVICE=cuda`." if on_gpu else "`."), "",
        f"- machine: {machine()}", f"- versions: {'; '.join(versions)}",
        f"- commit: {commit()}",
        f"- date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime(began))} UTC, "
        f"{time.time() - began:.0f} s",
        f"- both sides in turn, {rounds} rounds a row; medians",
        f"- load average when it began: {load:.2f}"]
    if load > 0.5:
        head.append("- **other programs ran on this machine meanwhile: only ratios"
                    " count, and roughly**")
    if not python:
        head.append("- no PyTorch here: only our side was measured")
    if not program:
        head.append("- no compiler here: limits that a program measures are missing")
    head += ["", "Ratio: PyTorch's time over ours, above 1 we are faster; then the"
             " lowest and the highest of the rounds, and that of both sides' best"
             " rounds. ns and us: the lower, the better.", ""]
    if on_gpu:
        head += ["Limits: GB/s the better copy of this run; TFLOP/s the multiply-add"
                 " peak of float32, of other types the best product of this run; us"
                 " one launch from C. Rows op_* until enqueued, others until done.", ""]
    else:
        head += ["Limits: GB/s the better of a plain C copy and addition of arrays,"
                 " whose stores read a line first: in place, or with other stores,"
                 " more than 100% is possible; GFLOP/s the multiply-add peak. torch7:"
                 " 1 thread, from the baseline page, another machine. Dims count"
                 " from 0.", ""]
    tail = ["## Goals missed", ""] + (misses or ["none"])
    if notes:
        tail += ["", "## Notes", ""] + notes
    path = args.out or os.path.join(HERE, "RESULTS.md" if on_gpu else "RESULTS-cpu.md")
    with open(path, "w") as file:
        file.write("\n".join(head + out + tail) + "\n")
    print(f"{path}: {len(misses)} goals missed, {time.time() - began:.0f} s")


with tempfile.TemporaryDirectory() as scratch:
    main(scratch)
