#!/bin/sh
# aarch64-sysroot.sh DIR - what the aarch64 preset compiles and links against: the arm64 packages
# of the libraries that the build needs, unpacked into DIR.
#
# Nothing is installed on this machine and dpkg is not told: apt works with a state of its own, in
# which nothing is installed, on the Debian mirror that this machine's lists name. The packages are
# those whose names end in -dev in tools/install-deps.sh's list for a build, and what they depend on.
# Does nothing when DIR is complete.
set -eu
[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
wanted=$(tools/install-deps.sh list build | tr ' ' '\n' | grep -- '-dev$' | sort)
stamp=$dir/.complete
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

apt=$dir/.apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc/preferences.d" "$apt/etc/apt.conf.d"
: >"$apt/status"
apt-get indextargets --format 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' 2>/dev/null | sort -u >"$apt/sources.list"
if [ ! -s "$apt/sources.list" ]; then
    echo "aarch64-sysroot: apt knows no Debian mirror here (apt-get update first)" >&2
    exit 1
fi
cat >"$apt/apt.conf" <<END
#clear APT::Architectures;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "$apt/etc/preferences.d";
END
# A word a line: the packages' names.
# shellcheck disable=SC2086
if ! {
    APT_CONFIG=$apt/apt.conf apt-get update -q &&
        APT_CONFIG=$apt/apt.conf apt-get install -q -y --download-only $wanted
} >"$apt/log" 2>&1; then
    tail -20 "$apt/log" >&2
    echo "aarch64-sysroot: apt could not get the arm64 packages" >&2
    exit 1
fi
for package in "$apt"/archives/*.deb; do
    dpkg-deb -x "$package" "$dir"
done
# A link to /lib/aarch64-linux-gnu/libm.so.6 is meant from here.
find "$dir" -type l -lname '/*' | while read -r link; do
    ln -sfn "$dir$(readlink "$link")" "$link"
done
rm -rf "$apt"
echo "$wanted" >"$stamp"
