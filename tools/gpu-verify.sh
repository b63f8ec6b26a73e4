#!/bin/sh
# gpu-verify.sh --pack OUT.tar [BUILD] | --run [OPTION...] - is all of radish's CUDA right on a real GPU?
#
#   --pack OUT.tar [BUILD]   on the machine that built radish (BUILD: build/release): the programs, the
#                            shared libraries that they need but for glibc, the emulated driver, PTX, the
#                            shipped model and its exam, in one file (OUT.tar.gz: half as large). Then, on
#                            a machine with a GPU and nothing else (no network, no packages):
#
#                                tar xf OUT.tar && radish-gpu/gpu-verify.sh --run --out RESULTS
#
#   --run                    does the steps below, each within its time; what a step has found is kept
#                            when it fails or runs out of time, and the next one begins
#     --out DIR              where results go (results): DIR/result.json, a log of each step
#     --only LIST            these steps, by commas; --skip LIST: all but these
#     --times N              each step may take N times as long (1)
#     --library PATH         another libcuda.so.1
#     --small                the smallest form of each step, to see that it runs
#
#   ceilings   what this GPU can do at most: memory, PCIe, launches, mma.sync, wgmma
#   kernels    every kernel beside the emulated one, bit by bit
#   p1         rows of logits of qwen3-0.6b's shape, and of a small mixture of experts, in 1,000 random
#              compositions each, bit by bit: prefixes found, read once by several, back from the host;
#              steps by graphs
#   exam       the questions that the shipped model must answer, computed on the GPU
#   serve      a server whose prompts share prefixes and whose cache is too small, with a host tier: all
#              requests are computed once more, alone and without the cache, and compared bit by bit
#              (where curl is installed)
#   products   each kernel's own figures: products, attention, copies
#   figures    steps of qwen3-0.6b's and llama-8b's shapes beside the ceilings
#   p1_q8_0, exam_q8_0, figures_q8_0   the same with weights in Q8_0; figures also of a mixture of
#              experts in qwen3-30b-a3b's shape, where the GPU has room (33 GB, and 10 GB for the rest)
#   p1_fp8, exam_fp8, figures_fp8      the same with K and V in fp8 (e4m3), without mixtures
#   torch      what torch takes for the same products and attention, where python3 has it
#   sanitizer  kernels under compute-sanitizer's memcheck and racecheck, where it is installed
set -u
all="ceilings kernels p1 exam serve figures p1_q8_0 exam_q8_0 figures_q8_0 p1_fp8 exam_fp8 figures_fp8 products torch sanitizer"

say() { echo "gpu-verify: $*"; }
die() { echo "gpu-verify: $*" >&2; exit 2; }
usage() { sed -n '2,/^set -u/p' "$0" | sed '$d; s/^# \{0,1\}//'; }

# ---- the bundle ----

# needed FILE...: their shared libraries but for glibc's own, which every Linux has.
needed() {
    ldd "$@" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' || true
}

pack() {
    out=$1 build=${2:-build/release}
    cd "$(dirname "$0")/.." || exit 2
    [ -x "$build/radish" ] || die "$build/radish is not there: build first"
    room=$(mktemp -d) && trap 'rm -rf "$room"' EXIT
    top=$room/radish-gpu
    mkdir -p "$top/bin" "$top/lib" "$top/models" "$top/tools/train"
    cp tools/gpu-verify.sh "$top/"
    for program in radish tests/test_shipped_model bench/bench_cuda bench/bench_cuda_ceilings; do
        [ ! -x "$build/$program" ] || cp "$build/$program" "$top/bin/"
    done
    for program in "$build"/bench/bench_*_cuda "$build"/tests/test_cuda_*; do
        [ ! -f "$program" ] || [ ! -x "$program" ] || cp "$program" "$top/bin/"
    done
    find "$build" -name 'libcuda-emulated.so' -exec cp {} "$top/lib/" \;
    for library in $(needed "$top"/bin/* "$top"/lib/*.so); do
        cp -L "$library" "$top/lib/"
    done
    strip "$top"/bin/* "$top"/lib/* 2>/dev/null || true
    for ptx in src/*/ptx bench/ptx; do
        mkdir -p "$top/$ptx" && cp "$ptx"/*.ptx "$top/$ptx/"
    done
    cp models/radish-tiny.gguf "$top/models/"
    cp tools/train/eval.jsonl "$top/tools/train/"
    cp tools/gpu-torch.py "$top/tools/"
    git rev-parse HEAD >"$top/commit" 2>/dev/null || echo unknown >"$top/commit"
    squeeze=
    case $out in *.gz | *.tgz) squeeze=-z ;; esac
    tar -C "$room" $squeeze -cf "$room/all.tar" radish-gpu && mv "$room/all.tar" "$out" || exit 1
    say "$out: $(wc -c <"$out" | awk '{printf "%.1f MB", $1 / 1e6}'), $(ls "$top/bin" | wc -l) programs"
}

# ---- steps; each in the bundle's folder, with $out for what it leaves ----

# ours PROGRAM ARG...: in the bundle's folder, with its libraries.
ours() {
    program=$1
    shift
    (cd "$here" && LD_LIBRARY_PATH=$here/lib RADISH_TEST_ROOT=$here exec "bin/$program" "$@")
}

has() { [ -x "$here/bin/$1" ]; }

# number NAME: of the ceilings, or nothing.
number() {
    [ -f "$out/ceilings.json" ] || return 0
    sed -n "s/^ *\"$1\": *\([0-9.e+-]*\),\{0,1\}$/\1/p" "$out/ceilings.json"
}

step_ceilings() {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,temperature.gpu \
        --format=csv 2>/dev/null
    ours bench_cuda_ceilings --ptx "$here/bench/ptx" --json "$out/ceilings.json" $library_option $small
}

# cases: the programs whose cases run on both drivers (tests/cuda/cuda_rig.h).
cases() {
    for program in "$here"/bin/test_cuda_*; do
        [ ! -x "$program" ] || ! grep -q RADISH_TEST_GPU "$program" || basename "$program"
    done
}

step_kernels() {
    failed=0 ran=0 launches=0
    for name in $(cases); do
        ran=$((ran + 1))
        RADISH_TEST_GPU=${library:-libcuda.so.1} ours "$name" >"$out/kernels.txt" 2>&1
        code=$?
        compared=$(awk '/^[0-9]+ launches compared$/ {n += $1} END {print n + 0}' "$out/kernels.txt")
        launches=$((launches + compared))
        if [ $code = 0 ] && [ "$compared" -gt 0 ]; then
            echo "$name: $compared launches, as emulated"
        else
            failed=$((failed + 1))
            cat "$out/kernels.txt"
            echo "$name: WRONG ($code, $compared launches compared)"
        fi
        echo "{\"programs\": $ran, \"failed\": $failed, \"launches\": $launches}" >"$out/kernels.json"
    done
    [ $failed = 0 ] && [ $ran -gt 0 ]
}

step_p1() {
    has bench_cuda || return 77
    ours bench_cuda --p1 $([ -n "$small" ] && echo 3 || echo 1000) --seconds 40 --dtype $dtype --kv $kv \
        --json "$out/$step.json" $library_option $small
}

step_exam() {
    long=1
    [ -z "$small" ] || long=0
    RADISH_TEST_DEVICE=cuda RADISH_TEST_DTYPE=$dtype RADISH_TEST_KV=$kv RADISH_TEST_LONG=$long \
        ours test_shipped_model >"$out/$step.txt" 2>&1
    code=$?
    cat "$out/$step.txt"
    awk -F'[ (]' '/ right \(/ { printf "{\"right\": %d, \"asked\": %d}\n", $2, $4; exit }' \
        "$out/$step.txt" >"$out/$step.json"
    return $code
}

# metric NAME [LABEL]: the sum of the server's figures whose lines begin so, and have the label.
metric() {
    awk -v name="$1" -v label="${2:-}" \
        'index($0, name) == 1 && (label == "" || index($0, label)) {n += $NF} END {printf "%d", n}' "$out/metrics.txt"
}

# ask URL PROMPT: an answer of a few tokens; none is an error.
ask() {
    curl -sSf --max-time 60 "$1/v1/completions" -H 'Content-Type: application/json' \
        -d "{\"prompt\": \"$2\", \"max_tokens\": 8, \"temperature\": 0}" >/dev/null || touch "$out/serve.failed"
}

# document NUMBER SENTENCES
document() {
    awk -v d="$1" -v n="$2" 'BEGIN {
        for (i = 1; i <= n; i++) printf "Line %d of book %d tells of %d ships and %d towns. ", i, d, i * d, i + d }'
}

step_serve() {
    command -v curl >/dev/null || return 77
    documents=8 sentences=24 asked=6 rounds=3 tokens=2048
    [ -z "$small" ] || documents=3 sentences=4 asked=2 rounds=2 tokens=256
    rm -f "$out/serve.failed"
    (cd "$here" && LD_LIBRARY_PATH=$here/lib exec bin/radish serve models/radish-tiny.gguf --device cuda --port 0 \
        --page-size 16 --max-total-tokens $tokens --enable-hierarchical-cache --hicache-ratio 8 --verify 1) \
        >"$out/serve.txt" 2>&1 &
    server=$!
    trap 'kill $server 2>/dev/null' EXIT
    url=
    for second in $(seq 60); do
        url=$(sed -n 's/.* on \(http:[^ ]*\).*/\1/p' "$out/serve.txt")
        [ -z "$url" ] && kill -0 $server 2>/dev/null || break
        sleep 1
    done
    cat "$out/serve.txt"
    [ -n "$url" ] || { echo "the server did not start within $second s"; return 1; }
    for round in $(seq $rounds); do
        for d in $(seq $documents); do
            asking=
            for q in $(seq $asked); do
                ask "$url" "$(document "$d" $sentences) Question $q of round $round:" &
                asking="$asking $!"
            done
            wait $asking
        done
    done
    for second in $(seq 60); do # what was asked is computed again when nothing else runs
        curl -sSf --max-time 10 "$url/metrics" >"$out/metrics.txt" || break
        [ "$(metric radish_verify_pending)" != 0 ] || break
        sleep 1
    done
    verified=$(metric radish_verify_requests_total) differ=$(metric radish_verify_mismatches_total)
    device=$(metric sglang:cached_tokens_total 'cache_source="device"')
    host=$(metric sglang:cached_tokens_total 'cache_source="host"')
    echo "$verified requests verified, $differ differ; $device tokens found on the GPU, $host on the host"
    echo "{\"verified\": $verified, \"differ\": $differ, \"device\": $device, \"host\": $host}" >"$out/serve.json"
    [ ! -f "$out/serve.failed" ] || { echo "a request got no answer"; return 1; }
    [ "$verified" -gt 0 ] && [ "$differ" = 0 ] && [ "$device" -gt 0 ] && [ "$host" -gt 0 ]
}

step_figures() {
    has bench_cuda || return 77
    ours bench_cuda --figures --dtype $dtype --kv $kv --json "$out/$step.json" $library_option $small \
        --read-gb-s "$(number read_gb_s)" --mma-tflops "$(number mma_sync_tflops)" \
        --wgmma-tflops "$(number wgmma_tflops)"
}

# Each one's JSON under its name.
step_products() {
    printf '{' >"$out/products.json"
    failed=0 comma=
    for program in "$here"/bin/bench_*_cuda; do
        [ -x "$program" ] || continue
        name=$(basename "$program") quick=
        [ "$name" != bench_gemm_cuda ] || quick=--quick
        rm -f "$out/products.one"
        ours "$name" $quick --json "$out/products.one" || failed=$((failed + 1))
        [ -s "$out/products.one" ] || continue
        printf '%s"%s": %s' "$comma" "$name" "$(cat "$out/products.one")" >>"$out/products.json"
        comma=,
    done
    printf '}\n' >>"$out/products.json"
    rm -f "$out/products.one"
    [ $failed = 0 ]
}

step_torch() {
    python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || return 77
    python3 "$here/tools/gpu-torch.py" "$out/torch.json"
}

step_sanitizer() {
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    [ -n "$sanitizer" ] || return 77
    wrong=0 ran=0
    for tool in memcheck racecheck; do
        for name in $(cases); do
            echo "$tool: $name"
            (cd "$here" && LD_LIBRARY_PATH=$here/lib RADISH_TEST_ROOT=$here RADISH_TEST_SMALL=1 \
                RADISH_TEST_GPU=${library:-libcuda.so.1} \
                "$sanitizer" --tool $tool --error-exitcode 9 "bin/$name") >"$out/sanitizer.txt" 2>&1
            tail -15 "$out/sanitizer.txt"
            ran=$((ran + 1))
            grep -q 'ERROR SUMMARY: 0 errors\|RACECHECK SUMMARY: 0 hazards' "$out/sanitizer.txt" ||
                wrong=$((wrong + 1))
            echo "{\"wrong\": $wrong, \"ran\": $ran}" >"$out/sanitizer.json"
        done
    done
    [ $wrong = 0 ]
}

# run_step NAME: p1, exam and figures have forms, which the name ends in: what weights are, and K and V.
run_step() {
    step=$1 dtype=bf16 kv=bf16
    case $step in
    *_q8_0) dtype=q8_0 ;;
    *_fp8) kv=fp8_e4m3 ;;
    esac
    name=${step%_q8_0}
    "step_${name%_fp8}"
}

# Seconds that a step may take: several times what an H100 beside 16 cores needs.
limit_of() {
    case $1 in
    ceilings) echo 60 ;;
    kernels) echo 180 ;; # a driver whose cache of compiled PTX is off compiles for each program
    p1 | p1_q8_0) echo 300 ;; # of two shapes each text alone first, then 40 s
    p1_fp8) echo 180 ;;
    exam | exam_q8_0 | exam_fp8) echo 120 ;;
    serve) echo 240 ;;
    torch) echo 60 ;;
    figures | figures_fp8) echo 300 ;; # 8 billion weights are drawn by the CPU
    figures_q8_0) echo 480 ;;          # 30 billion more
    products) echo 180 ;;
    sanitizer) echo 600 ;;
    esac
}

listed() { case ",$2," in *",$1,"*) return 0 ;; esac; return 1; }

run() {
    out=results only= skip= times=1 library= library_option= small=
    while [ $# -gt 0 ]; do
        case $1 in
        --small) small=--small && shift && continue ;;
        --out) out=${2:?} ;;
        --only) only=${2:?} ;;
        --skip) skip=${2:?} ;;
        --times) times=${2:?} ;;
        --library) library=${2:?} library_option="--library $2" ;;
        *) die "there is no option $1" ;;
        esac
        shift 2
    done
    for step in $(echo "$only,$skip" | tr , ' '); do
        listed "$step" "$(echo $all | tr ' ' ,)" || die "there is no step $step"
    done
    here=$(cd "$(dirname "$0")" && pwd)
    mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
    [ -z "$library" ] || export RADISH_LIBCUDA=$library
    failed=0 first=yes
    for step in $all; do
        [ -z "$only" ] || listed "$step" "$only" || continue
        ! listed "$step" "$skip" || continue
        limit=$(($(limit_of "$step") * times))
        began=$(date +%s)
        say "$step, $limit s at most"
        out=$out library=$library library_option=$library_option here=$here small=$small \
            timeout -k 5 "$limit" "$0" --step "$step" >"$out/$step.log" 2>&1
        code=$?
        case $code in
        0) word=ok ;;
        77) word=skipped ;;
        124 | 137) word=timeout ;;
        *) word=failed ;;
        esac
        seconds=$(($(date +%s) - began))
        echo "{\"status\": \"$word\", \"code\": $code, \"seconds\": $seconds}" >"$out/$step.status"
        tail -40 "$out/$step.log"
        say "$step: $word after $seconds s"
        [ $word != timeout ] || say "what it has found is kept; --only $step --times 3 gives it more time"
        [ $word = ok ] || [ $word = skipped ] || failed=$((failed + 1))
        assemble
    done
    say "results are in $out"
    [ $failed = 0 ]
}

# All that is known so far as one file; what a step wrote halfway is left out.
assemble() {
    tail -c 2 "$out/products.json" 2>/dev/null | grep -q '}$' || rm -f "$out/products.json"
    {
        printf '{"commit": "%s",\n "machine": "%s",\n "steps": {' \
            "$(cat "$here/commit" 2>/dev/null)" "$(uname -sr)"
        comma=
        for step in $all; do
            [ -f "$out/$step.status" ] || continue
            printf '%s\n  "%s": {"run": %s' "$comma" "$step" "$(cat "$out/$step.status")"
            [ ! -s "$out/$step.json" ] || printf ',\n   "found": %s' "$(cat "$out/$step.json")"
            printf '}'
            comma=,
        done
        printf '\n}}\n'
    } >"$out/result.json.new" && mv "$out/result.json.new" "$out/result.json"
}

case ${1:-} in
--pack)
    [ $# -ge 2 ] || die "--pack OUT.tar [BUILD]"
    case $2 in /*) target=$2 ;; *) target=$PWD/$2 ;; esac
    pack "$target" "${3:-}"
    ;;
--run) shift && run "$@" ;;
--step) run_step "$2" ;; # of a run
--help | -h) usage ;;
*) usage >&2; exit 2 ;;
esac
