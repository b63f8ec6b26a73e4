#!/bin/sh
# uninstall.sh [DESTDIR] - removes the files that the last `make install` from this tree put below
# DESTDIR, and the folders that are empty then.
set -eu
cd "$(dirname "$0")/.."
list=build/release/install_manifest.txt
[ -f $list ] || { echo "uninstall: $list is not there: nothing was installed from here" >&2; exit 1; }
while IFS= read -r file || [ -n "$file" ]; do
    rm -f "${1:-}$file"
    case $file in
    */radish/*) rmdir "$(dirname "${1:-}$file")" 2>/dev/null || true ;;
    esac
done <$list
echo "uninstall: $(wc -l <$list) files are gone"
