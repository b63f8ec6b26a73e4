#!/bin/sh
# make-deb.sh [JOBS] - builds the Debian packages radish, libradish0, libradish-storage0,
# libradish-dev and python3-radish of this tree into build/deb, and has lintian look them over: its errors are ours.
#
# What is built is a copy of the files that git knows (or of all, where there is no git), so nothing is
# written beside them and nothing of build/ gets in. Version and date are include/radish/radish.h's and
# the last commit's: the same commit gives the same changelog.
set -eu
cd "$(dirname "$0")/.."
jobs=${1:-$(tools/cpus.sh)}
out=$PWD/build/deb
for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || { echo "make-deb: $tool is missing: tools/install-deps.sh deb" >&2; exit 1; }
done

version=$(tools/version.sh)
rm -rf "$out"
source=$out/radish-$version
mkdir -p "$source"
if date=$(git log -1 --format=%aD 2>/dev/null); then
    git ls-files -z | tar --null --files-from=- -c | tar -x -C "$source"
else
    date=$(date -R -r include/radish/radish.h)
    tar -c --exclude=./build . | tar -x -C "$source"
fi
cp -r packaging/debian "$source/debian"
cat >"$source/debian/changelog" <<END
radish ($version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- radish maintainers <maintainers@radish.invalid>  $date
END

cd "$source"
DEB_BUILD_OPTIONS="parallel=$jobs nocheck" dpkg-buildpackage --build=binary --unsigned-changes \
    --unsigned-source >"$out/build.log" 2>&1 || { tail -30 "$out/build.log" >&2; exit 1; }
cd ..
rm -rf "$source"
lintian --allow-root --fail-on error --tag-display-limit 0 radish_"$version"_*.changes
ls -l *.deb
