#!/bin/sh
# run-tests.sh [JOBS] - the whole suite: everything in the release build, the unit tests
# again under ASan+UBSan, the threaded ones under TSan. Ends with what was skipped, the minutes by
# part, the longest tests, and as its last line "N passed, N failed" or "..., N skipped", which
# counts what programs and scripts skip inside (tests/report.py).
set -u
cd "$(dirname "$0")/.."
jobs=${1:-$(tools/cpus.sh)}

# part SECONDS-SINCE-THE-EPOCH PRESET WHAT STATE notes how a part went that began then.
part() {
    echo "$(($(date +%s) - $1)) $2 $3 $4" >>build/parts.txt
}

# run PRESET TARGET CTEST-ARGS... builds a target of a preset and runs its tests.
run() {
    preset=$1
    target=$2
    shift 2
    rm -f "build/$preset/junit.xml" # a run that dies must not count an old one
    began=$(date +%s)
    echo "== $preset (building)"
    if ! tools/build.sh "$preset" "$jobs" "$target" >"build/$preset.log" 2>&1; then
        tail -40 "build/$preset.log"
        echo "== $preset does not build"
        part "$began" "$preset" build failed
        return
    fi
    part "$began" "$preset" build ok
    began=$(date +%s)
    echo "== $preset (testing)"
    (cd "build/$preset" && ctest -j "$jobs" --output-on-failure --timeout "$limit" \
        --output-junit junit.xml "$@") | sed -un '/Test *#/p;/^[^ ]*FAIL/p;/CHECK/p;/rror/p;/seed/p'
    state=ok
    [ -f "build/$preset/junit.xml" ] || state=failed
    part "$began" "$preset" test $state
}

mkdir -p build
rm -f build/parts.txt build/skips.txt
export RADISH_TEST_SKIPS="$PWD/build/skips.txt"
limit=1200 # a slow and busy machine is no fault
[ -n "${RADISH_TEST_LONG:-}" ] && limit=7200
run release all
run asan unit_tests -L unit
run tsan threaded_tests -L threads
exec python3 tests/report.py build
