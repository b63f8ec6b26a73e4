#!/bin/sh
# install-clients.sh - the npm packages of tests/clients, as their lock file pins them, into
# build/clients. Where there is no npm, no node of version 20, or no registry, it says so and is
# done: tests/e2e/test_clients.py is skipped then.
set -u
cd "$(dirname "$0")/.."
say() {
    echo "radish: clients from npm are not tested: $1" >&2
    exit 0
}

command -v npm >/dev/null || say "there is no npm"
version=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
[ "${version:-0}" -ge 20 ] || say "they want node 20, and this is ${version:-none}"
mkdir -p build/clients
cp tests/clients/package.json tests/clients/package-lock.json build/clients/
cd build/clients || exit 1
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1 && exit 0
rm -rf node_modules
say "npm ci failed; see build/clients/npm.log"
