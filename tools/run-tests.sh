#!/bin/sh
# run-tests.sh [JOBS] - the whole suite: everything in the release build, the unit tests
# again under ASan+UBSan, the threaded ones under TSan. Each is built beside the tests of the one
# before. Ends with what was skipped, the minutes by part, the longest tests, and as its last line
# "N passed, N failed" or "..., N skipped", which counts what programs and scripts skip inside
# (tests/report.py).
set -u
cd "$(dirname "$0")/.."
jobs=${1:-$(tools/cpus.sh)}

# part SECONDS-SINCE-THE-EPOCH PRESET WHAT STATE notes how a part went that began then.
part() {
    echo "$(($(date +%s) - $1)) $2 $3 $4" >>build/parts.txt
}

# build PRESET TARGET: its tests are run by test, which reads how it went.
build() {
    began=$(date +%s)
    rm -f "build/$1.built"
    if $gently tools/build.sh "$1" "$jobs" "$2" >"build/$1.log" 2>&1; then
        part "$began" "$1" build ok
        touch "build/$1.built"
    else
        part "$began" "$1" build failed
    fi
}

# run_tests PRESET CTEST-ARGS... runs the tests of a preset that has been built.
run_tests() {
    preset=$1
    shift
    rm -f "build/$preset/junit.xml" # a run that dies must not count an old one
    if [ ! -f "build/$preset.built" ]; then
        tail -40 "build/$preset.log"
        echo "== $preset does not build"
        return
    fi
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
whole=$(date +%s)
gently=""
trap 'trap - INT; kill 0' INT # a shell's background jobs do not heed it
python=/usr/bin/python3
[ -x $python ] || python=python3

# What only waits for another (for a server, for its last test) leaves a CPU to the compiler: sanitizers
# are built beside the tests of the build before, and give way to them.
echo "== release (building)"
$python tests/made/make.py build/testmade >build/made.log 2>&1 & # or the tests do it, and say why not
made=$!
build release all
wait $made
gently="nice -n 10"
build asan unit_tests &
asan=$!
run_tests release
echo "== asan (building)"
wait $asan
build tsan threaded_tests &
tsan=$!
run_tests asan -L unit
echo "== tsan (building)"
wait $tsan
run_tests tsan -L threads
part "$whole" all tests ok
exec $python tests/report.py build
