#!/bin/sh
# install-deps.sh WHAT - installs the Debian packages that WHAT needs and that are
# missing. WHAT: build, python, test, bench, fuzz, long, deb, train. Does nothing when all are there; needs
# root or sudo otherwise, and says so. `install-deps.sh list WHAT` only names them.
set -eu

only_list=""
if [ "${1:-}" = list ]; then
    only_list=yes
    shift
fi

build="gcc libc6-dev cmake ninja-build pkg-config libevent-dev libjansson-dev libpcre2-dev
       libutf8proc-dev libxxhash-dev libssl-dev zlib1g-dev liburing-dev libhiredis-dev
       libcmocka-dev python3"
extra="libzmq3-dev libedit-dev" # without them the build works, and says what it cannot do
case "${1:-build}" in
build) packages="$build $extra" ;;
python) packages="$build python3-dev" ;;
test)  packages="$build $extra g++ clang-14 openssl python3-dev python3-numpy redis-server python3-jinja2 python3-jsonschema python3-zmq python3-msgpack nginx-light haproxy mandoc" ;;
bench) packages="$build python3-numpy libdnnl2 redis-server" ;;
fuzz)  packages="$build clang libclang-rt-14-dev" ;;
long)  packages="$build clang gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static musl-tools chromium prometheus fish mypy debootstrap strace systemd" ;;
deb)   packages="$build $extra build-essential debhelper dh-python python3-dev lintian dpkg-dev" ;;
train) packages="python3 python3-numpy python3-torch" ;;
*) echo "usage: $0 [list] build|python|test|bench|fuzz|long|deb|train" >&2; exit 2 ;;
esac
if [ -n "$only_list" ]; then
    echo $packages
    exit 0
fi

if ! command -v dpkg-query >/dev/null; then
    echo "radish: this is not a Debian system; please install by hand: $packages" >&2
    exit 0 # the build says what is really missing
fi

missing=""
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "radish: these packages are missing, and there is neither root nor sudo here:" >&2
    echo "    apt-get install$missing" >&2
    exit 1
fi

echo "radish: installing$missing"
export DEBIAN_FRONTEND=noninteractive
tries=0 # a new machine updates its lists by itself, and locks them
until why=$($as_root apt-get update -q 2>&1 >/dev/null); do
    tries=$((tries + 1))
    case $why in
    *lock*) [ $tries -lt 120 ] && sleep 5 && continue ;;
    esac
    echo "$why" >&2
    exit 1
done
$as_root apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=600 $missing \
    >/tmp/radish-apt.$$ 2>&1 || {
    tail -20 /tmp/radish-apt.$$ >&2
    rm -f /tmp/radish-apt.$$
    echo "radish: apt-get could not install$missing" >&2
    exit 1
}
rm -f /tmp/radish-apt.$$

# Tests start these programs by themselves. As services, which Debian makes of them, they would
# hold ports that nobody asked for: what was not there before this script is switched off.
if [ -d /run/systemd/system ]; then
    for service in nginx haproxy redis-server prometheus prometheus-node-exporter; do
        case " $missing " in
        *" $service "* | *" $service-light "*)
            $as_root systemctl disable --now -q "$service" 2>/dev/null || true
            ;;
        esac
    done
fi
