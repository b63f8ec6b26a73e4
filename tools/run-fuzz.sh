#!/bin/sh
# run-fuzz.sh [SECONDS] - builds the libFuzzer targets with clang under ASan+UBSan and
# runs each for SECONDS, starting from the corpus in tests/fuzz/corpus/NAME where there is
# one. What was found is kept in build/fuzz/corpus; a crash is left there too.
set -u
seconds=${1:-60}
cd "$(dirname "$0")/.."
tools/build.sh fuzz "${JOBS:-$(tools/cpus.sh)}" fuzzers || exit 1
passed=0
failed=0
for target in build/fuzz/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "build/fuzz/corpus/$name"
    seeds=""
    [ -d "tests/fuzz/corpus/$name" ] && seeds="tests/fuzz/corpus/$name"
    echo "== $name, $seconds s"
    if "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" $seeds \
        >"build/fuzz/$name.log" 2>&1; then
        grep -E "stat::number_of_executed_units|stat::peak_rss" "build/fuzz/$name.log"
        passed=$((passed + 1))
    else
        tail -40 "build/fuzz/$name.log"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
