#!/usr/bin/python3
# spec/reference/generate.py: writes the reference data beside it, by PyTorch.
"""Run by hand when an op or a case is added; the results are committed, and the test
run never computes them again. Written with PyTorch 1.13.1 on the CPU, in float64.
With --check it writes elsewhere, and names each file that differs from the one here."""

import filecmp
import importlib
import os
import sys
import tempfile
import warnings

import torch

import refdata

# Each part has a seed; the first ones share a sequence, in which they start where they
# did when their data was made. A new case goes to the end of a part that is the last of
# its seed, or is drawn aside (refdata.aside): so it changes no data of another.
STARTS = {
    "gen_elementwise": (20240229, 0),
    "gen_reduce": (20240229, 40394),
    "gen_network": (20240229, 99868),
    "gen_layer_norm": (20240229, 0),
    "gen_shape": (20240229, 160506),
    "gen_sort": (20240229, 190595),
    "gen_language": (1,),
    "gen_arrange": (2,),
    "gen_inverse": (3,),
    "gen_names": (4,),
    "gen_forms": (5,),
}


def check(folder):
    here = {f for f in os.listdir(refdata.ROOT) if f.endswith(".lua")}
    there = set(os.listdir(folder))
    bad = sorted(here ^ there) + [
        f for f in sorted(here & there)
        if not filecmp.cmp(os.path.join(refdata.ROOT, f), os.path.join(folder, f), False)]
    for name in bad:
        print("differs: " + name)
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: generate.py [--check]")
    warnings.simplefilter("ignore", UserWarning)  # "in beta", "deprecated"
    torch.set_num_threads(1)
    for part, start in STARTS.items():
        refdata.start(*start)
        importlib.import_module(part).generate()
    with tempfile.TemporaryDirectory() as other:
        checking = len(sys.argv) > 1
        folder = other if checking else refdata.ROOT
        print("%d ops, %d cases, %d bytes" % refdata.write_all(folder))
        sys.exit(check(other) if checking else 0)
