#!/bin/sh
# run-long.sh [PART...] - what `make test-long` runs: all parts, in this order, or those named. A part that
# fails does not keep the next from running. Ends with a line for each: its minutes, and what it said last.
#
#   suite      all that `make test` runs, each test in its long form
#   fuzz       each fuzzer, for FUZZ_SECONDS (600)
#   ports      clang, aarch64 under qemu, musl (tools/run-ports.sh)
#   deb        the Debian packages, made anew (tools/make-deb.sh), then installed and purged (tools/check-deb.sh)
#   container  the steps of packaging/Dockerfile (tools/check-container.py)
#
# JOBS: how much runs at a time; else as many as there are CPUs.
set -u
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(tools/cpus.sh)}
all="suite fuzz ports deb container"
for part in "$@"; do
    case " $all " in
    *" $part "*) ;;
    *) echo "run-long: $part is not one of: $all" >&2; exit 2 ;;
    esac
done

run_part() {
    case $1 in
    suite) RADISH_TEST_LONG=1 tools/run-tests.sh "$jobs" ;;
    fuzz) tools/run-fuzz.sh "${FUZZ_SECONDS:-600}" ;;
    ports) tools/run-ports.sh "$jobs" ;;
    # Those of an earlier commit may lie there.
    deb) tools/make-deb.sh "$jobs" && tools/check-deb.sh ;;
    container) tools/check-container.py ;;
    esac
}

mkdir -p build/long
failed=0
told=""
trap 'trap - INT; kill 0' INT
for part in ${*:-$all}; do
    echo "== $part"
    began=$(date +%s)
    # The part's own status, though tee ends the line.
    { run_part "$part" 2>&1; echo $? >"build/long/$part.status"; } | tee "build/long/$part.log"
    state=ok
    [ "$(cat "build/long/$part.status")" = 0 ] || { state=FAILED; failed=1; }
    told="$told$(printf '%-7s %-10s %6.1f min  %s' $state "$part" \
        "$(echo "$(date +%s) $began" | awk '{print ($1 - $2) / 60}')" "$(tail -1 "build/long/$part.log")")
"
done
printf '%s' "$told"
exit $failed
