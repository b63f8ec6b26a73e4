#!/bin/sh
# run-tests.sh [JOBS] - the whole suite: everything in the release build, the unit tests
# again under ASan+UBSan, the threaded ones under TSan. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
jobs=${1:-$(tools/cpus.sh)}
passed=0
failed=0
skipped=0

# run PRESET TARGET CTEST-ARGS... builds a target of a preset and adds up what its tests gave.
run() {
    preset=$1
    target=$2
    shift 2
    echo "== $preset (building)"
    if ! tools/build.sh "$preset" "$jobs" "$target" >"build/$preset.log" 2>&1; then
        tail -40 "build/$preset.log"
        echo "== $preset does not build"
        failed=$((failed + 1))
        return
    fi
    echo "== $preset (testing)"
    rm -f "build/$preset/junit.xml" # a run that dies must not count an old one
    (cd "build/$preset" && ctest -j "$jobs" --output-on-failure --timeout "$limit" \
        --output-junit junit.xml "$@") | sed -un '/Test *#/p;/^[^ ]*FAIL/p;/CHECK/p;/rror/p;/seed/p'
    counts=$(sed -n 's/.*<testsuite .*//p;s/^\ttests="\([0-9]*\)"/t=\1/p;s/^\tfailures="\([0-9]*\)"/f=\1/p;s/^\tskipped="\([0-9]*\)"/s=\1/p' \
        "build/$preset/junit.xml") || failed=$((failed + 1))
    t=0 f=0 s=0
    eval "$(echo "$counts" | grep '=')"
    passed=$((passed + t - f - s))
    failed=$((failed + f))
    skipped=$((skipped + s))
}

mkdir -p build
limit=1200 # a slow and busy machine is no fault
[ -n "${RADISH_TEST_LONG:-}" ] && limit=7200
started=$(date +%s)
run release all
run asan unit_tests -L unit
run tsan threaded_tests -L threads
echo "took $(($(date +%s) - started)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
