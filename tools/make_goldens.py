#!/usr/bin/env python3
"""Cuts the reference's recordings down to what the tests need.

usage: make_goldens.py REFERENCE_DIR GREEDY.safetensors OUT_DIR

REFERENCE_DIR holds strata-tiny.safetensors and gdn_released_shape.safetensors
as recorded from the reference implementation, GREEDY the continuations that
record_greedy.py made. Written are the tests' copies:

  strata-tiny.safetensors   stage recordings of the 300-token prompt keep their
                            last 16 rows, hidden states their last 32;
                            NAME.greedy come from GREEDY;
                            everything else is kept
  gdn_heads.safetensors     of the released shape (16 key, 48 value heads), the
                            key heads 0, 5, 10, 15 with their value heads
"""
import sys

import numpy
from safetensors.numpy import load_file, save_file

STAGES = ("gdn0.a", "gdn0.b", "gdn0.o", "gdn0.out", "gdn0.qkv", "gdn0.y", "gdn0.z",
          "qsa3.index_qk", "qsa3.k", "qsa3.v", "qsa3.attn_tail", "qsa3.out_tail", "qsa3.q_tail")
KEY_HEADS, DIM = (0, 5, 10, 15), 128


def trim_tiny(tensors, greedy):
    for name in STAGES:
        tensors[name] = tensors[name][-16:].copy()
    for name in tensors:
        if ".hidden." in name:
            tensors[name] = tensors[name][-32:].copy()
    for name, ids in greedy.items():
        if not numpy.array_equal(tensors[name], ids):
            first = int(numpy.argmax(tensors[name] != ids))
            print(f"{name}: differs from the first recording from token {first} on")
        tensors[name] = ids
    return tensors


def trim_gdn(tensors):
    values = [3 * k + j for k in KEY_HEADS for j in range(3)]
    channels = numpy.concatenate(
        [numpy.arange(DIM) + (base + h) * DIM
         for base, heads in ((0, KEY_HEADS), (16, KEY_HEADS), (32, values)) for h in heads])
    rows = numpy.concatenate([numpy.arange(DIM) + h * DIM for h in values])
    out = {}
    for name, t in tensors.items():
        if name in ("A_log", "dt_bias", "state_in", "state_out"):
            t = t[values]
        elif name in ("a", "b", "g", "beta"):
            t = t[:, values]
        elif name in ("qkv", "conv_out", "history"):
            t = t[:, channels]
        elif name == "conv_weight":
            t = t[channels]
        elif name in ("o", "y", "z"):
            t = t[:, rows]
        out[name] = t.copy()
    return out


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, greedy, target = sys.argv[1:]
    save_file(trim_tiny(load_file(f"{source}/strata-tiny.safetensors"), load_file(greedy)),
              f"{target}/strata-tiny.safetensors")
    save_file(trim_gdn(load_file(f"{source}/gdn_released_shape.safetensors")),
              f"{target}/gdn_heads.safetensors")


main()
