#!/bin/sh
# build.sh PRESET [JOBS] [TARGET...] - configures once, then builds; quiet unless it fails.
set -eu
preset=$1
cd "$(dirname "$0")/.."
jobs=${2:-$(tools/cpus.sh)}
[ $# -lt 2 ] && shift 1 || shift 2

if [ ! -f "build/$preset/build.ninja" ]; then
    log=$(mktemp)
    cmake --preset "$preset" -DRADISH_TESTDATA="${RADISH_TESTDATA:-$PWD/../shared/data}" >"$log" 2>&1 || {
        cat "$log" >&2
        rm -f "$log"
        exit 1
    }
    rm -f "$log"
fi
if [ $# -gt 0 ]; then
    cmake --build --preset "$preset" -j "$jobs" --target "$@"
else
    cmake --build --preset "$preset" -j "$jobs"
fi
