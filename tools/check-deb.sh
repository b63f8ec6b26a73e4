#!/bin/sh
# check-deb.sh - installs, serves, upgrades and purges the packages of build/deb (made by
# tools/make-deb.sh) in a minimal Debian 12 below build/deb-root; part of make test-long.
# Needs root, debootstrap and the way to a Debian mirror. Ends with "N passed, N failed".
#
# systemd does not run in there: tests/check_unit.py looks at the unit from outside, and the program is
# started with the unit's command as a user without rights.
set -u
cd "$(dirname "$0")/.."
packages=$PWD/build/deb
clean=$PWD/build/deb-root # as debootstrap left it
root=$PWD/build/deb-check
passed=0
failed=0

check() {
    words=$1
    shift
    if "$@" >build/deb-check.log 2>&1; then
        echo "ok      $words"
        passed=$((passed + 1))
    else
        tail -20 build/deb-check.log
        echo "FAILED  $words"
        failed=$((failed + 1))
    fi
}

inside() {
    chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# All files, but for what dpkg, apt and the linker's cache note for themselves.
files() {
    (cd "$root" && find . -xdev ! -path './proc/*' ! -path './tmp/*' ! -path './var/cache/*' \
        ! -path './var/log/*' ! -path './var/lib/dpkg/*' ! -path './var/lib/apt/*' ! -path './etc/ld.so.cache' | sort)
}

# answers PORT ARGS...: the unit's command says the capital of France on that port, and ends well.
answers() {
    port=$1
    shift
    chroot --userspec=65534:65534 --groups= "$root" /usr/bin/radish serve --config /etc/radish/radish.conf "$@" >build/deb-serve.log 2>&1 &
    server=$!
    /usr/bin/python3 - "$port" <<'END'
import json, sys, time, urllib.request
body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
for tries in range(600):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health").read()
        break
    except OSError:
        time.sleep(0.1)
ask = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/v1/chat/completions", json.dumps(body).encode(),
                             {"Content-Type": "application/json"})
said = json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"]
print(said)
sys.exit("Paris" not in said)
END
    code=$?
    kill $server && wait $server || code=1
    cat build/deb-serve.log
    return $code
}

# Another version of a package, which has nothing else of its own.
bump() {
    rm -rf build/deb-bump "$root/tmp/newer.deb"
    dpkg-deb -R "$1" build/deb-bump && sed -i 's/^Version: .*/&+next/' build/deb-bump/DEBIAN/control &&
        dpkg-deb -b build/deb-bump "$root/tmp/newer.deb"
}

upgraded() {
    [ "$(cat "$root/etc/radish/radish.conf")" = "$(cat build/deb-conf)" ] &&
        inside dpkg-query -W -f '${Version}\n' radish | grep -q '+next'
}

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "check-deb: not run: it needs root and debootstrap" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
ls "$packages"/radish_*.deb >/dev/null 2>&1 || tools/make-deb.sh || exit 1
if [ ! -f "$clean/etc/debian_version" ]; then
    rm -rf "$clean"
    debootstrap --variant=minbase bookworm "$clean" >build/deb-root.log 2>&1 || {
        tail -5 build/deb-root.log >&2
        exit 1
    }
fi
rm -rf "$root"
cp -a "$clean" "$root"

check "its unit is exposed by 2.5 at most, and its filter lets the server work" \
    /usr/bin/python3 tests/check_unit.py . build/release/radish
inside apt-get update -q >/dev/null 2>&1
inside apt-get install -y -q --no-install-recommends libssl3 zlib1g python3 >/dev/null 2>&1
files >build/deb-before
cp "$packages"/*.deb "$root/tmp"
check "they install" inside sh -c 'apt-get install -y -q --no-install-recommends $(ls /tmp/*.deb | grep -v dbgsym)'
check "the service's command answers" answers 30000
check "the library finds its own" inside sh -c 'ldconfig -p | grep -q libradish.so.0 && ldconfig -p | grep -q libradish-storage.so.0'
check "Python finds the package" inside python3 -c 'import radish; assert radish.RadixCache(max_tokens=9).insert([1], [2]).node'
echo "port = 30999" >>"$root/etc/radish/radish.conf"
cp "$root/etc/radish/radish.conf" build/deb-conf
check "there is a newer one" bump "$packages"/radish_*.deb
check "which takes the place of the older" inside dpkg -i /tmp/newer.deb
check "and leaves the configuration alone" upgraded
check "which counts" answers 30999
check "they are purged" inside apt-get purge -y -q --auto-remove radish libradish0 libradish-storage0 libradish-dev python3-radish
files >build/deb-after
check "and nothing of them stays" sh -c "diff build/deb-before build/deb-after | grep radish && exit 1 || exit 0"
rm -rf "$root" build/deb-bump build/deb-before build/deb-after build/deb-conf build/deb-check.log build/deb-serve.log
echo "$passed passed, $failed failed"
[ $failed = 0 ]
