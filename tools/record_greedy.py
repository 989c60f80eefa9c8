#!/usr/bin/env python3
"""Records greedy continuations from the reference implementation.

usage: record_greedy.py MODEL_DIR GOLDEN.safetensors OUT.safetensors

Needs torch and transformers 5.17.0. Reads NAME.ids of each prompt and writes
NAME.greedy, 48 tokens by argmax with a cache. The attention mask is given, all
ones: without it, generate() with pad_token_id 0 takes every "!" of the prompt
(id 0) for padding and hides it, which is what happened to the first recording
of the prompt "recall" (three of them; its token 13 came out as 1690, with all
of the prompt visible it is 603 by 0.017).
"""
import sys

import numpy
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

PROMPTS = ("short", "chat", "two_docs", "over_budget", "recall")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    golden = load_file(sys.argv[2])
    out = {}
    for name in PROMPTS:
        ids = torch.tensor(golden[f"{name}.ids"]).long()[None]
        with torch.no_grad():
            text = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=48)
        out[f"{name}.greedy"] = text[0, ids.shape[1]:].numpy().astype(numpy.int32)
    save_file(out, sys.argv[3])


main()
