"""Times flash-linear-attention's kernels on the shapes of bench_cuda, in the same way:
median microseconds of replays of a graph after warm-up.

    python3 tools/bench_cuda/bench_peers.py

Needs torch, triton and fla (fla-core, flash-linear-attention). A row that fails says why.
"""
import statistics

import torch

HK, HV, D, LAYERS = 16, 48, 128, 36
DEVICE, DTYPE = "cuda", torch.bfloat16


def median_us(call, inputs, rounds=15):
    """call(inputs[i]) for every i is one graph; microseconds of one call."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            for x in inputs[:2]:
                call(*x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in inputs:
            call(*x)
    times = []
    for i in range(rounds + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) * 1e3 / len(inputs))
    return statistics.median(times)


def row(name, call, inputs):
    try:
        print(f"{name:44s} {median_us(call, inputs):9.2f} us", flush=True)
    except Exception as error:  # a peer may not take a shape, or be of another version
        print(f"{name:44s} {type(error).__name__}: {str(error)[:120]}", flush=True)


def tensors(batch, length):
    def normal(*shape, dtype=DTYPE):
        return torch.randn(*shape, device=DEVICE, dtype=dtype)

    q, k, v = normal(batch, length, HK, D), normal(batch, length, HK, D), normal(batch, length, HV, D)
    g = -torch.rand(batch, length, HV, device=DEVICE) * 0.05
    beta = torch.rand(batch, length, HV, device=DEVICE, dtype=DTYPE)
    return q, k, v, g, beta, normal(batch, HV, D, D, dtype=torch.float32)


def main():
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

    def chunk(q, k, v, g, beta, state):
        return chunk_gated_delta_rule(q, k, v, g, beta, initial_state=state, output_final_state=True,
                                      use_qk_l2norm_in_kernel=True)

    def recurrent(q, k, v, g, beta, state):
        return fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, initial_state=state, output_final_state=True,
                                                use_qk_l2norm_in_kernel=True)

    with torch.no_grad():
        try:
            from fla.modules.convolution import causal_conv1d
            weight = torch.randn((2 * HK + HV) * D, 4, device=DEVICE, dtype=DTYPE)
            for length, sets in ((512, 6), (1024, 4), (2048, 3)):
                inputs = [(torch.randn(1, length, (2 * HK + HV) * D, device=DEVICE, dtype=DTYPE),) for _ in range(sets)]
                row(f"fla conv1d + silu, bf16, T={length}",
                    lambda x: causal_conv1d(x, weight=weight, activation="silu"), inputs)
        except ImportError as error:
            print("fla conv1d:", error)
        try:
            from fla.modules import FusedRMSNormGated
            norm = FusedRMSNormGated(D, device=DEVICE, dtype=DTYPE)
            for length, sets in ((512, 6), (1024, 4), (2048, 3)):
                inputs = [tuple(torch.randn(length * HV, D, device=DEVICE, dtype=DTYPE) for _ in range(2))
                          for _ in range(sets)]
                row(f"fla gated norm, bf16, T={length}", lambda x, z: norm(x, z), inputs)
        except ImportError as error:
            print("fla gated norm:", error)
        for batch, sets in ((1, 36), (16, 12), (64, 6), (256, 2)):
            row(f"fla recurrent + l2norm, T=1, batch {batch}", recurrent, [tensors(batch, 1) for _ in range(sets)])
        # Last, since it is tuned for a minute or two at its first calls.
        for length, sets in ((2048, 3), (512, 6), (1024, 4), (8192, 1), (32, 12)):
            row(f"fla chunk + l2norm, bf16, T={length}", chunk, [tensors(1, length) for _ in range(sets)])


if __name__ == "__main__":
    main()
