#!/bin/sh
# run-bench.sh [SECTION...] - what `make bench` prints: all sections, in this order, or those named.
#
#   cache      the cache's own speed, by operation
#   sched      what a step of the scheduler costs beside its forward pass
#   storage    the file store beside raw reads and writes
#   gemm       matrix products beside the instructions' rates
#   attention  decode and prefill beside memory's and the products' rates
#   grammar    masks of structured output over 151,936 tokens, and what compiling takes
#   forms      decoding under a grammar beside decoding without, and forced text as drafts
#   scan       the delta rule and Mamba 2 beside the instructions' and memory's rates
#   trace      what the cache costs a request of a traffic trace
#   replay     hit rates of four policies on a trace of conversations
#   states     what turns, edits and branches compute of a hybrid's prompts, beside all of them
#   drafts     answers with guessed tokens beside the same without: radish-tiny, llama-110m, qwen3-0.6b
#   windows    tokens of context that a GB holds, with window memory and with a mask
#   model      prefill and decode of llama-110m and qwen3-0.6b, bf16 and q8_0
#   experts    the same of qwen3-30b-a3b and gpt-oss-20b (6 layers each) and qwen3.6-35b-a3b (8), in Q4_K_M and MXFP4
#   start      qwen3-0.6b, from nothing until ready for a request
#   prefix     32 requests behind one prefix, tree attention on and off
#   scaling    contexts of 1k to 128k and 1 to 512 running requests, tiny-llama
#   blog       what a host tier gives conversations that come back
#   owner      what a prompt of 32,768 tokens costs the scheduler's thread with a host tier
#   tiers      what the tiers copy, and how long a prompt of 8,192 tokens then waits
#   serving    the workloads W1 to W4, 16 clients over HTTP, alone and beside a busy process
#   stall      how long /health waits while others send and ask much
#   dashboard  the page at / over a tree of 10,000 nodes: answers, and frames where there is a Chromium
#
# Models (random weights, real shapes; 1.8 GB) and traces are made into build/bench when they are first
# needed; those of `experts`, 2.6 to 4.8 GB, take one to two minutes each and do not stay. In the environment:
#   SCALING_CONTEXT=32768  stops at that context: every doubling takes four times as long, the last one
#                          two or three minutes with two cores
#   RUNS=5                 W1 to W4 that often instead of three times; medians
#   LLAMA_SERVER=PATH      states sends the same prompts to llama.cpp's server, too, and tells what it computes
#   QUICK=1                all sections in their smallest form, to see that they run: models of two layers,
#                          short lines, a sixteenth of the load. Its figures say nothing. Some 3 minutes
set -eu
cd "$(dirname "$0")/.."
bin=build/release
sections="cache sched storage gemm attention scan grammar forms trace replay states drafts windows model experts start prefix scaling blog owner tiers serving stall dashboard"
for section in "$@"; do
    case " $sections " in
    *" $section "*) ;;
    *) echo "run-bench: $section is not one of: $sections" >&2; exit 2 ;;
    esac
done
[ -x $bin/radish ] || { echo "run-bench: $bin/radish is not there: make" >&2; exit 1; }

if [ -n "${QUICK:-}" ]; then
    work=build/bench/quick
    shrink="--layers 2 --vocab 4000" # options of make-model.py for every model
    prompt=128 long_prompt=256 longest_prompt=512 line=0.05 kernel_line=0.01 waiting=500 requests=400 turn_tokens=16
    context=${SCALING_CONTEXT:-2048} chats="--users 8 --turns 3" tier_tokens=1024 divide=16 runs=1
    form_tokens=8 form_rounds=1
    rounds="--pairs 1"
else
    work=build/bench
    shrink=
    prompt=512 long_prompt=2048 longest_prompt=8192 line=3 kernel_line= waiting=10000 requests= turn_tokens=
    context=${SCALING_CONTEXT:-131072} chats= tier_tokens=8192 divide=1 runs=${RUNS:-3}
    form_tokens=48 form_rounds=5
    rounds=
fi
mkdir -p "$work"

# model NAME SHAPE ARG...: the file's path, made if it is not there.
model() {
    file=$work/$1-bf16.gguf
    shape=$2
    shift 2
    # shrink is a list of words.
    # shellcheck disable=SC2086
    [ -f "$file" ] || tools/make-model.py --shape "$shape" --type bf16 "$@" $shrink "$file" >&2
    echo "$file"
}

# trace FORM FILE: likewise.
trace() {
    [ -f "$work/$2" ] || tools/make-trace.py --form "$1" ${requests:+--requests $requests} "$work/$2" >&2
    echo "$work/$2"
}

bench_cache() {
    echo "== bench_cache"
    $bin/bench/bench_cache
}

bench_sched() {
    echo "== bench_sched"
    $bin/bench/bench_sched $waiting
}

bench_storage() {
    echo "== bench_storage"
    $bin/bench/bench_storage
}

bench_gemm() {
    echo "== bench_gemm"
    $bin/bench/bench_gemm ${kernel_line:+-s $kernel_line}
}

bench_attention() {
    echo "== bench_attention"
    $bin/bench/bench_attention ${kernel_line:+-s $kernel_line}
}

bench_scan() {
    echo "== bench_scan"
    $bin/bench/bench_scan ${kernel_line:+-s $kernel_line}
}

bench_grammar() {
    echo "== bench_grammar"
    # 20,000 tokens in a quick run.
    $bin/bench/bench_grammar ${QUICK:+small}
}

bench_forms() {
    echo "== bench_forms, the shipped model and qwen3-0.6b bf16"
    $bin/bench/bench_forms models/radish-tiny.gguf 8 $form_tokens $form_rounds
    $bin/bench/bench_forms "$(model qwen3-0.6b qwen3-0.6b)" 8 $form_tokens $form_rounds
}

bench_trace() {
    echo "== bench_trace, conversations of 64 tenants"
    file=$(trace rxtrace tenants.rxtrace)
    for page_size in 1 16 64; do
        $bin/bench/bench_trace "$file" --page-size $page_size
    done
}

bench_replay() {
    echo "== radish replay, an hour of conversations"
    file=$(trace mooncake conversations.jsonl.gz)
    $bin/radish replay "$file" --policy lru --policy lfu --policy slru --policy cost \
        --capacity-blocks 10000 --capacity-blocks 30000 --capacity-blocks 100000
}

bench_states() {
    for shape in nano-qwen35 nano-lfm2 nano-granite-h; do
        file=$work/$shape-whole.gguf # in a quick run, too: of two layers none would be attention
        [ -f "$file" ] || tools/make-model.py --shape $shape --type bf16 "$file" >&2
        echo "== bench_states, $shape"
        $bin/bench/bench_states "$file" $turn_tokens
        [ -n "${LLAMA_SERVER:-}" ] || continue
        echo "== the same over HTTP, beside $LLAMA_SERVER, $shape"
        RADISH=$bin/radish bench/states_beside.py "$file" ${turn_tokens:+--message $turn_tokens}
    done
}

bench_drafts() {
    echo "== radish bench --what drafts"
    for file in models/radish-tiny.gguf "$(model llama-110m llama-110m)" "$(model qwen3-0.6b qwen3-0.6b)"; do
        # rounds is nothing, or an option and its value.
        # shellcheck disable=SC2086
        $bin/radish bench "$file" --what drafts $rounds
    done
    echo "== bench_draft_model, llama-110m beside 18 M weights"
    small=$(model llama-18m llama-110m --layers 2 --width 256 --heads 4 --kv-heads 2 --ffn 768)
    $bin/bench/bench_draft_model "$(model llama-110m llama-110m)" "$small"
    echo "== bench_draft_model, eight layers of qwen3.5-0.8b with a head of its own"
    file=$work/qwen35-nextn.gguf # in a quick run, too: of two layers none would be attention
    [ -f "$file" ] ||
        tools/make-model.py --shape qwen3.5-0.8b --layers 8 --vocab 32000 --nextn 1 --type bf16 "$file" >&2
    $bin/bench/bench_draft_model "$file" nextn 128
}

bench_windows() {
    echo "== bench_windows"
    $bin/bench/bench_windows
}

bench_model() {
    for shape in llama-110m qwen3-0.6b; do
        file=$(model $shape $shape)
        for weights in file q8_0; do
            echo "== $shape, weights $weights"
            $bin/bench/bench_model -n $prompt -s $line --weights $weights "$file"
            $bin/bench/bench_model -n $long_prompt -s $line --weights $weights "$file" | grep "prefill"
        done
    done
    file=$(model llama-110m llama-110m)
    $bin/bench/bench_model -n $longest_prompt -s $line "$file" | grep "prefill"
}

bench_experts() {
    for shape in qwen3-30b-a3b-6l gpt-oss-20b-6l qwen3.6-35b-a3b-8l; do
        type=q4_k_m
        [ $shape != gpt-oss-20b-6l ] || type=mxfp4_moe
        file=$work/$shape.gguf
        # shrink is a list of words. Four layers of a hybrid are the fewest one of which attends.
        # shellcheck disable=SC2086
        tools/make-model.py --shape $shape --type $type $shrink ${shrink:+--layers 4 --experts 16} "$file" >&2
        echo "== $shape, $type"
        $bin/bench/bench_model -n $prompt -s $line "$file"
        rm "$file"
    done
}

bench_start() {
    file=$(model qwen3-0.6b qwen3-0.6b)
    for dtype in auto q8_0; do
        echo "== start of qwen3-0.6b bf16, --dtype $dtype"
        $bin/radish bench "$file" --what start --dtype $dtype
    done
}

bench_prefix() {
    echo "== 32 requests behind one prefix, llama-110m bf16"
    $bin/radish bench "$(model llama-110m-16k llama-110m --context 16384)" --what tree
}

bench_scaling() {
    echo "== contexts up to $context tokens, and running requests, tiny-llama bf16"
    $bin/radish bench "$(model tiny-llama-128k tiny-llama --context 131072)" --what scaling \
        --context-length "$context"
}

bench_blog() {
    echo "== hicache_blog, a pool of a quarter of the conversations without and with a host tier"
    # chats is a list of words.
    # shellcheck disable=SC2086
    RADISH=$PWD/$bin/radish /usr/bin/python3 bench/hicache_blog.py $chats "$(model llama-110m llama-110m)"
}

bench_owner() {
    echo "== bench_owner"
    $bin/bench/bench_owner
}

bench_tiers() {
    echo "== bench_tiers, first tokens with qwen3-0.6b bf16"
    $bin/bench/bench_tiers $tier_tokens 16 "$work" "$(model qwen3-0.6b qwen3-0.6b)"
}

bench_serving() {
    echo "== W1 to W4 over HTTP, llama-110m bf16"
    RADISH=$PWD/$bin/radish /usr/bin/python3 bench/serving.py --runs "$runs" --divide $divide \
        "$(model llama-110m llama-110m)"
}

bench_stall() {
    echo "== the longest waits of a small request, shipped model"
    RADISH=$PWD/$bin/radish /usr/bin/python3 bench/stall.py --divide $divide models/radish-tiny.gguf
    echo "== /metrics beside a long prompt, llama-110m bf16"
    RADISH=$PWD/$bin/radish /usr/bin/python3 bench/scrape.py --tokens $((30000 / divide)) \
        "$(model llama-110m llama-110m)"
}

bench_dashboard() {
    echo "== the page at / over 10,000 nodes, shipped model"
    RADISH=$PWD/$bin/radish /usr/bin/python3 bench/dashboard.py --nodes $((10000 / divide)) models/radish-tiny.gguf
}

# sections is a list of words.
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $sections
for section in "$@"; do
    "bench_$section"
done
