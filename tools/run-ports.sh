#!/bin/sh
# run-ports.sh [JOBS] - other compilers, another C library and another processor; part of
# make test-long, packages by tools/install-deps.sh long. Ends with "N passed, N failed".
#
#   clang    everything, warnings are errors; the shipped model's logits have gcc's bits
#   aarch64  everything, cross compiled, warnings are errors, against Debian's arm64 packages
#            (tools/aarch64-sysroot.sh); under qemu-user the shipped model's logits in f32, and in q8_0
#            by each way to multiply bytes, have this machine's bits, and the unit tests of $emulated pass
#   musl     everything compiles without a warning; libradish, its examples and its unit tests run
#            (tests/musl/check_musl.py says what is not linked)
set -u
cd "$(dirname "$0")/.."
jobs=${1:-$(tools/cpus.sh)}
passed=0
failed=0
# Indices, numbers and files. Attention and the shipped model take very long with qemu.
emulated='^test_(containers|kv_allocator|page_runs|page_hash|radix_key|radix_cache|match_handle|kv_window|window_cache|window_req|hicache|kv_codec|minifloat|ops|gemm|gemm_quant|gemm_stack|attn_pools|gguf|tokenizer|jinja|sampler|cuda_emulator)$'

# check WORDS COMMAND...: one line for what went well, the end of its output for what did not.
check() {
    words=$1
    shift
    if "$@" >build/ports.log 2>&1; then
        echo "ok      $words"
        passed=$((passed + 1))
    else
        tail -40 build/ports.log
        echo "FAILED  $words"
        failed=$((failed + 1))
    fi
}

# logits DTYPE COMMAND...: a digest of the shipped model's logits behind 120 tokens.
logits() {
    dtype=$1
    shift
    ids=$(seq -s, 5 7 840)
    "$@" logits models/radish-tiny.gguf --json --dtype "$dtype" --ids "$ids" >build/logits.json &&
        md5sum <build/logits.json
}

# same_logits DTYPE COMMAND...: as the program has that this machine's compiler made.
same_logits() {
    ours=$(logits "$1" build/release/radish) && theirs=$(logits "$@") || return 1
    echo "$1: $ours here, $theirs there"
    [ "$ours" = "$theirs" ]
}

# same_under CAP DTYPE COMMAND...: the same of instructions up to CAP, against plain C here: all sets have
# one arithmetic for blocks of integers, and neither has a bf16 KV cache then.
same_under() {
    cap=$1
    dtype=$2
    shift 2
    ours=$(logits "$dtype" env RADISH_ISA=scalar build/release/radish) &&
        theirs=$(logits "$dtype" env RADISH_ISA="$cap" "$@") || return 1
    echo "$dtype, $cap: $ours here, $theirs there"
    [ "$ours" = "$theirs" ]
}

mkdir -p build
check "release builds" tools/build.sh release "$jobs"

check "clang builds everything without a warning" tools/build.sh clang "$jobs"
for dtype in auto f32 q8_0; do
    check "clang's logits are gcc's, $dtype" same_logits $dtype build/clang/radish
done

check "there are arm64 libraries" tools/aarch64-sysroot.sh build/aarch64-sysroot
check "gcc for aarch64 builds everything without a warning" tools/build.sh aarch64 "$jobs"
check "logits of aarch64 are this machine's, f32" \
    same_logits f32 qemu-aarch64-static -L build/aarch64-sysroot build/aarch64/radish
for isa in i8mm dotprod neon; do
    check "logits of aarch64 are this machine's, q8_0 by $isa" \
        same_under $isa q8_0 qemu-aarch64-static -L build/aarch64-sysroot build/aarch64/radish
done
check "unit tests of aarch64 pass" sh -c 'cd build/aarch64 && ctest -j "$1" --output-on-failure \
    --timeout 3600 --no-tests=error -R "$2"' sh "$jobs" "$emulated"

check "with musl" tests/musl/check_musl.py . build/musl "$jobs"
sed -n 's/^musl: /        /p' build/ports.log

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
