#!/bin/sh
# make-ptx.sh [check] - makes the PTX of all CUDA kernels, which is committed, from their sources.
#
#     src/ROOM/kernels/NAME.cu -> src/ROOM/ptx/NAME.sm80.ptx    for sm_80 and newer, PTX 7.4
#                                 src/ROOM/ptx/NAME.sm90.ptx    with HOPPER, for sm_90a, PTX 8.0
#     bench/kernels/NAME.cu    -> bench/ptx/...                 likewise
#
# A form without a kernel is left out, and the second of a source that defines ONE_FORM (dialect.h).
# Debian's clang-14 does it, without any file of the CUDA SDK; another release makes other text. It
# knows neither sm_90a nor PTX 8.0: their instructions stand in inline assembly, which it does not
# look into, so the second form is told what it is afterwards.
#
# tools/ptx.sums, made with them, has a line for each form: a digest of the source as the preprocessor
# leaves it, with compiler and options, and one of the PTX that it was made into. Where both fit it is
# not compiled again, which takes a second; RADISH_TEST_LONG=1 compiles all of them.
#
# `check` changes nothing and says which files differ from what the sources make; 77: there is no
# clang-14. PTXAS=/usr/local/cuda/bin/ptxas: each form is assembled, too, with words on registers;
# a kernel that spills or needs a stack is an error.
set -eu
cd "$(dirname "$0")/.."

clang=${CLANG:-clang-14}
if ! command -v "$clang" >/dev/null; then
    echo "make-ptx.sh: skipped, there is no $clang (tools/install-deps.sh test installs it)"
    exit 77
fi
version=$("$clang" --version | head -1)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

sums=tools/ptx.sums
all=${RADISH_TEST_LONG:-0}

# sum FILE: its digest, "-" where there is none.
sum() {
    [ -e "$1" ] || { echo -; return; }
    sha256sum <"$1" | cut -c1-64
}

# compile SOURCE OUT ARCH FLAGS... makes $made/all/OUT.
compile() {
    source=$1 form=$2 arch=$3
    shift 3
    set -- -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib \
        -Xclang -target-feature -Xclang +ptx74 -Wno-unknown-cuda-version -Wall -Wno-unused-function \
        -ffp-contract=off -O3 -I. -Isrc -Isrc/device/kernels "$@" "$source"
    "$clang" -E -P "$@" -o "$made/text"
    from=$( (cat "$made/text"; echo "$version $arch $*") | sha256sum | cut -c1-64)
    out=$made/all/$form
    mkdir -p "$(dirname "$out")"
    if [ "$all" = 0 ] && grep -qsx "$from $(sum "$form") $form" $sums; then
        [ ! -e "$form" ] || cp "$form" "$out"
    else
        "$clang" -S "$@" -o "$made/text"
        # What the compiler says of itself is no part of the program.
        if ! grep -q '\.entry' "$made/text"; then
            rm -f "$out"
        elif [ "$arch" = sm_90a ]; then
            sed '/^\/\//d; s/^\.version.*/.version 8.0/; s/^\.target.*/.target sm_90a/' "$made/text" | cat -s >"$out"
        else
            sed '/^\/\//d' "$made/text" | cat -s >"$out"
        fi
    fi
    echo "$from $(sum "$out") $form" >>"$made/sums"
    [ -z "${PTXAS:-}" ] || [ ! -e "$out" ] || assemble "$out" "$arch"
}

assemble() {
    "$PTXAS" -arch="$2" -v "$1" -o /dev/null >"$made/said" 2>&1 || { cat "$made/said"; exit 1; }
    grep -E 'Compiling entry|registers|spill' "$made/said" | sed "s|^ptxas info *: *|${1#"$made/all/"}: |"
    if grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$made/said" >/dev/null; then
        echo "make-ptx.sh: a kernel of ${1#"$made/all/"} spills registers" >&2
        exit 1
    fi
}

for source in src/*/kernels/*.cu bench/kernels/*.cu; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cu)
    ptx=$(dirname "$(dirname "$source")")/ptx
    compile "$source" "$ptx/$name.sm80.ptx" sm_80
    grep -qx '#define ONE_FORM' "$source" || compile "$source" "$ptx/$name.sm90.ptx" sm_90a -DHOPPER
done

if [ "${1:-}" != check ]; then
    rm -f src/*/ptx/*.ptx bench/ptx/*.ptx
    cp -r "$made/all/." .
    cp "$made/sums" $sums
    exit 0
fi
wrong=""
for file in $( (cd "$made/all" && find . -name '*.ptx'; cd "$OLDPWD" && find src bench -name '*.ptx') |
    sed 's|^\./||' | sort -u); do
    cmp -s "$file" "$made/all/$file" || wrong="$wrong $file"
done
[ -z "$wrong" ] || {
    echo "make-ptx.sh: not what their sources make now (tools/make-ptx.sh makes them):$wrong"
    exit 1
}
echo "the committed PTX is what its sources make"
