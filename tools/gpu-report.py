#!/usr/bin/env python3
"""gpu-report.py RESULT.json... - what tools/gpu-verify.sh found, as the tables of docs/gpu.md.

Of several results (of one GPU) each step is taken from the last one that has it; they are kept in
docs/benchmarks/gpu.json. --print: the tables on stdout, and no file is changed."""
import json
import pathlib
import re
import sys

BEGIN, END = "<!-- tools/gpu-report.py writes from here -->\n", "<!-- to here -->\n"
CEILINGS = [
    ("read_gb_s", "memory, read by a kernel", "GB/s"), ("copy_gb_s", "memory, copied: read and written", "GB/s"),
    ("host_to_device_gb_s", "pinned memory to the GPU", "GB/s"),
    ("device_to_host_gb_s", "and back", "GB/s"), ("mma_sync_tflops", "mma.sync, bf16, in a loop", "TFLOP/s"),
    ("wgmma_tflops", "wgmma, bf16, in a loop", "TFLOP/s"), ("launch_us", "a launch", "us"),
    ("graph_launch_us", "a launch in a graph", "us"),
    ("dependent_launch_us", "a dependent launch in a graph", "us"),
]
FORMS = (("", ""), ("_q8_0", " in Q8_0"), ("_fp8", " with K and V in fp8"))  # of steps


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def found(result, step):
    return result["steps"].get(step, {}).get("found") or {}


def share(value):
    return f"{100 * value:.0f}%" if value else ""


def outcome(result, step):
    run = result["steps"].get(step, {}).get("run")
    return run["status"] if run else "not run"


def compositions(p1):
    return f"{p1['shape']}: {p1['compositions']:,} batches ({p1['with_groups']:,} with groups), " \
           f"{p1['rows']:,} rows, {p1['differ']:,} differ; {p1['graph_steps']:,} steps by graphs, " \
           f"{p1['loaded_tokens']:,} tokens from the host"


def checks(result):
    kernels, sanitizer = found(result, "kernels"), found(result, "sanitizer")
    rows = [("every kernel beside the emulated one, bit by bit", outcome(result, "kernels"),
             f"{kernels['programs']} programs of cases, {kernels['failed']} with a difference" if kernels else "")]
    for form, words in FORMS:
        shapes, exam = found(result, "p1" + form).get("p1", []), found(result, "exam" + form)
        rows.append((f"rows of logits{words} in random batches beside those alone, bit by bit",
                     outcome(result, "p1" + form), "<br>".join(map(compositions, shapes))))
        rows.append(("the shipped model's exam" + words, outcome(result, "exam" + form),
                     f"{exam['right']} of {exam['asked']} right" if exam else ""))
    serve = found(result, "serve")
    rows.append(("a server with shared prefixes and a host tier, every request computed again alone",
                 outcome(result, "serve"), f"{serve['verified']} requests, {serve['differ']} differ; "
                 f"{serve['device']} tokens found on the GPU, {serve['host']} on the host" if serve else ""))
    rows.append(("compute-sanitizer, memcheck and racecheck", outcome(result, "sanitizer"),
                 f"{sanitizer['wrong']} programs with words" if sanitizer else ""))
    return table(("check", "", "found"), rows)


def ceilings(result):
    numbers = found(result, "ceilings")
    rows = [(name, f"{numbers[key]:,.1f} {unit}") for key, name, unit in CEILINGS if key in numbers]
    return table(("this GPU at most", ""), rows) if rows else ""


def products(result):
    """Ours beside torch's, where both were measured."""
    ours, theirs = found(result, "products"), found(result, "torch").get("products", {})
    rows = []
    for name in ("bench_gemm_cuda", "bench_gemm_many_cuda"):
        for row in ours.get(name, {}).get("products", []):
            if row["what"] not in ("plan", "quantised", "as for few") or row["tokens"] not in (1, 8, 32, 2048):
                continue
            model, matrix = row["shape"].split(" ", 1)
            shape = {"0.6b": "qwen3-0.6b", "8b": "llama-8b"}[model] + " " + matrix.replace("lm_head", "head")
            weights = row.get("weights", "bf16")
            torch_row = theirs.get(f"{shape} {row['tokens']}") if weights == "bf16" else None
            if weights != "bf16":
                shape += f" {weights}" + (", by the kernel for few" if row["what"] == "as for few" else "")
            rate = f"{row['bytes_per_second'] / 1e9:,.0f} GB/s, {share(row['of_ceiling'])} of reading" \
                if "bytes_per_second" in row else f"{row['flops_per_second'] / 1e12:,.0f} TFLOP/s"
            rows.append((shape, row["tokens"], f"{row['seconds'] * 1e6:.1f} us", rate,
                         f"{torch_row['us']:.1f} us, {share(torch_row['us'] / row['seconds'] / 1e6)}"
                         if torch_row else ""))
    parts = [table(("product", "tokens", "time", "", "torch, and what we reach of its rate"), rows)] if rows else []
    rows = [(row["case"], f"{row['seconds'] * 1e6:.1f} us", f"{row['bytes_per_second'] / 1e9:,.0f} GB/s",
             f"{row['flops_per_second'] / 1e12:.0f} TFLOP/s")
            for row in ours.get("bench_attention_cuda", {}).get("attention", [])]
    if rows:
        parts.append(table(("attention of a layer", "time", "", ""), rows))
    return "\n\n".join(parts)


def figures(result):
    rows = []
    for row, words in [(row, words) for form, words in FORMS for row in found(result, "figures" + form).get("rows", [])]:
        name, what = row["shape"] + words, row["what"]
        if what == "decode":
            rows.append((name, f"decode, {row['requests']} behind {row['context']:,} tokens", f"{row['ms']:.2f} ms",
                         f"{row['gb_s']:,.0f} GB/s", f"{share(row['of_read'])} of reading"))
        elif what == "prefill":
            rows.append((name, f"prefill of {row['tokens']:,}", f"{row['ms']:.1f} ms", f"{row['tflops']:.0f} TFLOP/s",
                         f"{share(row['of_mma'])} of mma.sync" +
                         (f", {share(row['of_wgmma'])} of wgmma" if row["of_wgmma"] else "")))
        elif what == "tree":
            rows.append((name, f"{row['requests']} behind a shared {row['shared']:,}", f"{row['ms_with_groups']:.2f} ms",
                         f"{row['ms']:.2f} ms when each reads it", f"{row['times']:.1f} times as fast"))
        elif what == "load":
            rows.append((name, f"{row['tokens']:,} tokens from pinned memory", f"{row['ms']:.1f} ms",
                         f"{row['computed_ms']:.0f} ms computed", f"{row['times']:.1f} times as fast"))
    return table(("shape", "what", "time", "", "beside"), rows) if rows else ""


def torch(result):
    numbers = found(result, "torch")
    if not numbers:
        return ""
    rows = [(name, f"{row['us']:.1f} us", f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else "",
             f"{row['gb_s']:,.0f} GB/s" if "gb_s" in row else "")
            for kind in ("products", "attention") for name, row in numbers[kind].items()]
    return f"torch {numbers['torch']} in the same run, for comparison:\n\n" + table(
        ("torch's linear and SDPA", "time", "", ""), rows)


def report(result):
    numbers = found(result, "ceilings")
    head = f"{numbers['gpu']} (sm_{numbers['arch']}, {numbers['multiprocessors']} multiprocessors, driver for CUDA " \
           f"{numbers['driver'] // 1000}.{numbers['driver'] % 1000 // 10})" if numbers else "A GPU"
    parts = [f"{head}, one run of `tools/gpu-verify.sh`; what it could not finish is told as timeout or failed.",
             checks(result), ceilings(result), figures(result), products(result), torch(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    paths = [word for word in sys.argv[1:] if word != "--print"]
    if not paths or any(word.startswith("-") for word in paths):
        sys.exit(__doc__)
    result = {"steps": {}}
    for path in paths:
        one = json.loads(pathlib.Path(path).read_text())
        result = {**result, **one, "steps": {**result["steps"], **one["steps"]}}
    text = report(result)
    if "--print" in sys.argv:
        print(text, end="")
        return
    document = root / "docs/gpu.md"
    old = document.read_text()
    document.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: BEGIN + text + END, old,
                               flags=re.S))
    (root / "docs/benchmarks/gpu.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
