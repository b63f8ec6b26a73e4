#!/bin/sh
# run-bench.sh - what `make bench` prints: the cache's own speed, by operation and on a
# traffic trace, prefill and decode of llama-110m and qwen3-0.6b (synthetic weights, bf16),
# what the tiers copy and what a prompt of 8192 tokens then waits for (qwen3-0.6b),
# and the wall time of workload W1 (16 clients, one 1536-token prefix) with the cache on
# and off.
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

for b in bench_cache bench_storage bench_gemm bench_attention; do
    echo "== $b"
    "$bin/bench/$b"
done

if [ ! -f "$tools/make_gguf.py" ]; then
    echo "skipped: prefill, decode and W1 need $tools/make_gguf.py"
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
    echo "== $preset bf16"
    "$bin/bench/bench_model" -s 3 "$model"
    "$bin/bench/bench_model" -n 2048 -s 3 "$model" | grep "prefill"
done

echo "== hicache_blog, a pool of a quarter of the conversations without and with a host tier"
RADISH=$PWD/$bin/radish /usr/bin/python3 bench/hicache_blog.py models/radish-tiny.gguf

echo "== bench_tiers, first tokens with qwen3-0.6b bf16"
"$bin/bench/bench_tiers" 8192 16 "$work" "$work/qwen3-0.6b-bf16.gguf"

# w1 LABEL SERVE-FLAGS...: starts a server, fires W1, stops it.
w1() {
    label=$1
    shift
    port=$((20000 + $$ % 10000))
    "$bin/radish" serve "$work/llama-110m-bf16.gguf" --port $port --dtype bf16 \
        --max-total-tokens 65536 "$@" \
        >"$work/serve.log" 2>&1 &
    server=$!
    trap 'kill $server 2>/dev/null' EXIT
    for i in $(seq 100); do
        /usr/bin/python3 - $port <<'P' 2>/dev/null && break
import sys, urllib.request
urllib.request.urlopen("http://127.0.0.1:%s/health" % sys.argv[1], timeout=1)
P
        sleep 0.2
    done
    /usr/bin/python3 "$tools/shared_prefix_load.py" --style openai --port $port \
        --workload W1 --label "$label" || true
    kill $server
    wait $server 2>/dev/null || true
    trap - EXIT
}
echo "== W1, llama-110m bf16"
w1 "cache on"
w1 "cache off" --disable-radix-cache
