#!/bin/sh
# run-bench.sh - what `make bench` prints: the cache's own speed, by operation and on a
# traffic trace, prefill and decode of llama-110m and qwen3-0.6b (synthetic weights, bf16 and
# q8_0), the start of qwen3-0.6b, 32 requests behind one prefix, contexts of 1k to 128k and 1 to 512
# running requests (tiny-llama), what a host tier gives conversations that come back, what the
# tiers copy and what a prompt of 8192 tokens then waits for (qwen3-0.6b), and the workloads W1
# to W4 (16 clients over HTTP), alone and beside a busy process.
#
# SCALING_CONTEXT=32768 in the environment stops at that context: every doubling takes four times
# as long, the last one two or three minutes with two cores.
#
# The models and the load generator come from the test data's tools folder
# (RADISH_TESTDATA/../tools); what needs them is skipped, in words, where it is absent.
set -eu
cd "$(dirname "$0")/.."
data=${RADISH_TESTDATA:-../shared/data}
tools=$data/../tools
work=build/bench
mkdir -p "$work"
bin=build/release

for b in bench_cache bench_sched bench_storage bench_gemm bench_attention; do
    echo "== $b"
    "$bin/bench/$b"
done

if [ ! -f "$tools/make_gguf.py" ]; then
    echo "skipped: prefill, decode and serving need $tools/make_gguf.py"
    exit 0
fi
trace=$work/default.rxtrace
[ -f "$trace" ] || /usr/bin/python3 "$tools/trace_gen.py" "$trace" >/dev/null 2>&1
echo "== bench_trace, the default trace of trace_gen.py"
for page_size in 1 16 64; do
    "$bin/bench/bench_trace" "$trace" --page-size $page_size
done

for preset in llama-110m qwen3-0.6b; do
    model=$work/$preset-bf16.gguf
    [ -f "$model" ] ||
        /usr/bin/python3 "$tools/make_gguf.py" --preset $preset --type bf16 --out "$model"
    for weights in file q8_0; do
        echo "== $preset, weights $weights"
        "$bin/bench/bench_model" -s 3 --weights $weights "$model"
        "$bin/bench/bench_model" -n 2048 -s 3 --weights $weights "$model" | grep "prefill"
    done
done
for dtype in auto q8_0; do
    echo "== start of qwen3-0.6b bf16, --dtype $dtype"
    "$bin/radish" bench "$work/qwen3-0.6b-bf16.gguf" --what start --dtype $dtype
done
long=$work/llama-110m-16k.gguf
[ -f "$long" ] ||
    /usr/bin/python3 "$tools/make_gguf.py" --preset llama-110m --type bf16 --ctx 16384 --out "$long"
"$bin/bench/bench_model" -n 8192 -s 3 "$long" | grep "prefill"
echo "== 32 requests behind one prefix"
"$bin/radish" bench "$long" --what tree

tiny=$work/tiny-llama-128k.gguf
[ -f "$tiny" ] ||
    /usr/bin/python3 "$tools/make_gguf.py" --preset tiny-llama --type bf16 --ctx 131072 --out "$tiny"
echo "== contexts up to ${SCALING_CONTEXT:-131072} tokens, and running requests, tiny-llama bf16"
"$bin/radish" bench "$tiny" --what scaling --context-length "${SCALING_CONTEXT:-131072}"

echo "== hicache_blog, a pool of a quarter of the conversations without and with a host tier"
RADISH=$PWD/$bin/radish /usr/bin/python3 bench/hicache_blog.py "$work/llama-110m-bf16.gguf"

echo "== bench_tiers, first tokens with qwen3-0.6b bf16"
"$bin/bench/bench_tiers" 8192 16 "$work" "$work/qwen3-0.6b-bf16.gguf"

echo "== W1 to W4 over HTTP, llama-110m bf16"
RADISH=$PWD/$bin/radish /usr/bin/python3 bench/serving.py "$work/llama-110m-bf16.gguf" \
    "$tools/shared_prefix_load.py"
