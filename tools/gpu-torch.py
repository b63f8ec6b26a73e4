#!/usr/bin/env python3
"""gpu-torch.py OUT.json - what torch takes on this GPU for products and attention of our shapes.

Times are medians of CUDA events over graphs of several launches, over weights that do not all fit into the
L2 cache, with drawn numbers."""
import json
import statistics
import sys

import torch

# name: (n, k) of y[t][n] = x[t][k] w[n][k]
PRODUCTS = {
    "qwen3-0.6b qkv": (4096, 1024), "qwen3-0.6b o": (1024, 2048), "qwen3-0.6b gate_up": (6144, 1024),
    "qwen3-0.6b down": (1024, 3072), "qwen3-0.6b head": (151936, 1024),
    "llama-8b qkv": (6144, 4096), "llama-8b o": (4096, 4096), "llama-8b gate_up": (28672, 4096),
    "llama-8b down": (4096, 14336), "llama-8b head": (128256, 4096),
}
TOKENS = (1, 8, 32, 2048)
COLD_BYTES = 400 << 20


def seconds_of(calls):
    """Of one call: all of them are launched as one graph."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / len(calls))
    return statistics.median(times)


def products():
    found = {}
    for name, (n, k) in PRODUCTS.items():
        count = max(1, min(40, COLD_BYTES // (n * k * 2)))
        weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        for tokens in TOKENS:
            if tokens > 32 and "head" in name:
                continue
            x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            calls = [lambda w=w: torch.nn.functional.linear(x, w) for w in weights]
            while len(calls) < 8:
                calls += calls
            seconds = seconds_of(calls)
            found[f"{name} {tokens}"] = {"us": seconds * 1e6, "tflops": 2e-12 * n * k * tokens / seconds,
                                         "gb_s": 2e-9 * n * k / seconds}
    square = [torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    seconds = seconds_of([lambda: square[0] @ square[1]] * 4)
    found["8192 x 8192 x 8192"] = {"us": seconds * 1e6, "tflops": 2e-12 * 8192 ** 3 / seconds}
    return found


def attention():
    found = {}
    for heads, tokens in ((16, 2048), (16, 8192), (32, 2048), (32, 8192)):
        q = torch.randn(1, heads, tokens, 128, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(1, 8, tokens, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        seconds = seconds_of([lambda: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True)] * 4)
        found[f"prefill {tokens}, {heads} heads"] = {
            "us": seconds * 1e6, "tflops": 2e-12 * heads * 128 * tokens * tokens / seconds}
    for batch, context in ((1, 2048), (32, 2048), (32, 8192)):
        for heads in (16, 32):
            q = torch.randn(batch, heads, 1, 128, device="cuda", dtype=torch.bfloat16)
            k, v = (torch.randn(batch, 8, context, 128, device="cuda", dtype=torch.bfloat16)
                    for _ in range(2))
            seconds = seconds_of([lambda: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=True)] * 8)
            found[f"decode {batch} x {context}, {heads} heads"] = {
                "us": seconds * 1e6, "gb_s": 1e-9 * 2 * k.numel() * 2 / seconds}
    return found


def main():
    torch.manual_seed(1)
    result = {"torch": torch.__version__, "products": products(), "attention": attention()}
    with open(sys.argv[1], "w") as out:
        json.dump(result, out, indent=1)
    for kind in ("products", "attention"):
        for name, row in result[kind].items():
            rates = ", ".join(f"{value:.1f} {unit}" for unit, value in row.items())
            print(f"{name:30} {rates}")


if __name__ == "__main__":
    main()
