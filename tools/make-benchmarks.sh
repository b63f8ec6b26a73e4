#!/bin/sh
# make-benchmarks.sh [MODEL [ARG...]] - measures what docs/benchmarks.md shows, and puts it there.
#
# Without MODEL it is llama-110m in bf16 with random weights, made by make_gguf.py from the test
# data's tools folder (RADISH_TESTDATA/../tools) into build/bench. ARGs go to every run of
# `radish bench` (e.g. --workload react, or --max-total-tokens 65536). PAIRS=5 in the environment
# takes medians of five pairs of runs instead of three.
#
# It writes docs/benchmarks/suite.csv and suite.svg, and the tables between the two marker
# comments of docs/benchmarks.md; DOCS=folder writes all three there instead. Nothing is
# replaced unless every run succeeded. With llama-110m on two cores a pair takes about six
# minutes, mostly without the cache; PAIRS=1 is the short version. Let nothing else run.
set -eu
cd "$(dirname "$0")/.."
bin=build/release/radish
work=build/bench
docs=${DOCS:-docs}
pairs=${PAIRS:-3}
mkdir -p "$work" "$docs/benchmarks"
[ -x "$bin" ] || { echo "make-benchmarks: $bin is not there: make" >&2; exit 1; }

if [ $# -gt 0 ]; then
    model=$1
    shift
else
    model=$work/llama-110m-bf16.gguf
    make_gguf=${RADISH_TESTDATA:-../shared/data}/../tools/make_gguf.py
    if [ ! -f "$model" ]; then
        [ -f "$make_gguf" ] || { echo "make-benchmarks: no MODEL given, and no $make_gguf" >&2; exit 1; }
        # Under another name first: a run that is interrupted must not leave half a model.
        /usr/bin/python3 "$make_gguf" --preset llama-110m --type bf16 --out "$model.part"
        mv "$model.part" "$model"
    fi
fi

# run FILE ARG...: `radish bench` into a file, which is shown either way.
run() {
    out=$1
    shift
    echo "radish bench $*" >&2
    "$bin" bench "$model" "$@" >"$out" || {
        cat "$out" >&2
        exit 1
    }
    cat "$out"
}
run "$work/speed.txt" --what speed,tree "$@"
run "$work/suite.txt" --what suite --pairs "$pairs" --markdown "$work/suite.md" \
    --csv "$work/suite.csv" --svg "$work/suite.svg" "$@"

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
