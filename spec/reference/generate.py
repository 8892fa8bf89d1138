#!/usr/bin/python3
# spec/reference/generate.py: writes the reference data beside it, by PyTorch.
"""Run by hand when an op or a case is added; the results are committed, and the test
run never computes them again. Written with PyTorch 1.13.1 on the CPU, in float64.
With the names of parts (gen_shape, ...): only the files of those."""

import importlib
import sys

import torch

import refdata

PARTS = ("gen_elementwise", "gen_reduce", "gen_network", "gen_shape", "gen_sort")
# each with numbers of its own, so that one may grow without the others changing
OWN_NUMBERS = {"gen_language": 1, "gen_arrange": 2}

if __name__ == "__main__":
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or PARTS + tuple(OWN_NUMBERS)
    for part in wanted:
        if part in OWN_NUMBERS:
            refdata.random.seed(OWN_NUMBERS[part])
        importlib.import_module(part).generate()
    print("%d ops, %d cases, %d bytes" % refdata.write_all(only=sys.argv[1:] != []))
