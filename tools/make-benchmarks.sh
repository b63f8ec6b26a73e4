#!/bin/sh
# make-benchmarks.sh [MODEL [ARG...]] - measures what docs/benchmarks.md shows, and puts it there.
#
# Without MODEL it is llama-110m in bf16 with random weights, made by make-model.py into build/bench.
# ARGs go to every run of `radish bench` with it (e.g. --max-total-tokens 65536). In the environment,
# PAIRS=5 takes medians of five pairs of runs instead of three (no_reuse has nine at least),
# SUITE="--workload react" are options of the suite alone, and SCALING_CONTEXT=32768 is the longest
# context of the scaling table instead of 131072: every doubling takes four times as long, the last one
# two or three minutes. That table is of tiny-llama with a context of 131072 tokens. QUICK=1 with
# DOCS=folder runs all of it with a model of two layers and one workload, to see that it runs.
#
# It writes docs/benchmarks/suite.csv and suite.svg, and the tables between the two marker
# comments of docs/benchmarks.md; DOCS=folder writes all three there instead. Nothing is
# replaced unless every run succeeded. With llama-110m on two cores a pair takes four to seven
# minutes, mostly without the cache; PAIRS=1 is the short version. Let nothing else run.
set -eu
cd "$(dirname "$0")/.."
bin=build/release/radish
docs=${DOCS:-docs}
if [ -n "${QUICK:-}" ]; then
    [ -n "${DOCS:-}" ] || { echo "make-benchmarks: QUICK=1 measures nothing for docs/: give DOCS=folder" >&2; exit 2; }
    work=build/bench/quick
    shrink="--layers 2 --vocab 4000" # options of make-model.py for every model
    pairs=1 suite="--workload json_decode" context=2048
else
    work=build/bench
    shrink=
    pairs=${PAIRS:-3} suite=${SUITE:-} context=${SCALING_CONTEXT:-131072}
fi
mkdir -p "$work" "$docs/benchmarks"
[ -x "$bin" ] || { echo "make-benchmarks: $bin is not there: make" >&2; exit 1; }

# make_model FILE ARG...: unless it is there.
make_model() {
    file=$1
    shift
    # shrink is a list of words.
    # shellcheck disable=SC2086
    [ -f "$file" ] || tools/make-model.py "$@" --type bf16 $shrink "$file" >&2
}

if [ $# -gt 0 ]; then
    model=$1
    shift
else
    model=$work/llama-110m-bf16.gguf
    make_model "$model" --shape llama-110m
fi

# run FILE MODEL ARG...: `radish bench` into a file, which is shown either way.
run() {
    out=$1
    shift
    echo "radish bench $*" >&2
    "$bin" bench "$@" >"$out" || {
        cat "$out" >&2
        exit 1
    }
    cat "$out"
}
run "$work/speed.txt" "$model" --what start,speed,tree "$@"
# suite is a list of words.
# shellcheck disable=SC2086
run "$work/suite.txt" "$model" --what suite --pairs "$pairs" --markdown "$work/suite.md" \
    --csv "$work/suite.csv" --svg "$work/suite.svg" $suite "$@"
tiny=$work/tiny-llama-128k-bf16.gguf
make_model "$tiny" --shape tiny-llama --context 131072
run "$work/scaling.txt" "$tiny" --what scaling --context-length "$context"

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)
{
    echo
    echo "Measured $(date -u +%Y-%m-%d) on ${cpu:-an unknown CPU}, $(nproc) CPUs, load average" \
        "$(cut -d' ' -f1 /proc/loadavg) at the end."
    echo
    echo '```'
    cat "$work/speed.txt"
    echo '```'
    echo
    cat "$work/suite.md"
    echo
    echo "![measured gain beside its bound](benchmarks/suite.svg)"
    echo
    echo "Scaling, tiny-llama in bf16 (2.6M random weights), contexts up to" \
        "$context tokens, then requests that run at one time:"
    echo
    echo '```'
    cat "$work/scaling.txt"
    echo '```'
    echo
} >"$work/tables.md"

page=$docs/benchmarks.md
[ -f "$page" ] || cp docs/benchmarks.md "$page"
awk -v tables="$work/tables.md" '
    /^<!-- measured: begin/ { print; while ((getline line < tables) > 0) print line; skip = 1 }
    /^<!-- measured: end/ { skip = 0; ends++ }
    !skip { print }
    END { exit ends != 1 }' "$page" >"$work/benchmarks.md"
cp "$work/benchmarks.md" "$page"
cp "$work/suite.csv" "$work/suite.svg" "$docs/benchmarks/"
echo "written: $page, $docs/benchmarks/suite.csv, $docs/benchmarks/suite.svg"
