#!/usr/bin/python3
# spec/reference/generate.py: writes the reference data beside it, by PyTorch.
"""Run by hand when an op or a case is added; the results are committed, and the test
run never computes them again. Written with PyTorch 1.13.1 on the CPU, in float64."""

import torch

import gen_elementwise
import gen_network
import gen_reduce
import gen_shape
import gen_sort
import refdata

if __name__ == "__main__":
    torch.set_num_threads(1)
    for part in (gen_elementwise, gen_reduce, gen_network, gen_shape, gen_sort):
        part.generate()
    print("%d ops, %d cases, %d bytes" % refdata.write_all())
