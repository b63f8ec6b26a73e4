#!/bin/sh
# install-clients.sh [clients|agents] - the npm packages of tests/clients or tests/agents (over 1 GB,
# for long runs), as their lock file pins them, into build/ under the same name. Where there is no
# npm, no node of version 20, or no registry, it says so and ends well: tests/e2e/test_clients.py or
# test_agents.py is skipped then.
#
# `make` calls it where build/WHAT/done is missing or old. That is not written without npm and node, which somebody
# may install tomorrow. It is where npm failed, since trying each time may mean to wait for a registry each time; it says
# so, and calling this by hand tries again.
set -u
cd "$(dirname "$0")/.."
what=${1:-clients}
say() {
    echo "radish: $what from npm are not tested: $1" >&2
    exit 0
}

rm -f "build/$what/done"
command -v npm >/dev/null || say "there is no npm"
version=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
[ "${version:-0}" -ge 20 ] || say "they want node 20, and this is ${version:-none}"
mkdir -p "build/$what"
cp "tests/$what/package.json" "tests/$what/package-lock.json" "build/$what/"
cd "build/$what" || exit 1
# Agents' own scripts put their programs in place, and npm ci would want the packages of all systems
# in the lock file, of which not every registry has every version.
how="ci --ignore-scripts"
[ "$what" = agents ] && how="install --no-save"
npm $how --no-audit --no-fund --loglevel=error >npm.log 2>&1 && {
    echo "with packages" >done
    exit 0
}
rm -rf node_modules
echo "without packages: npm $how failed" >done
say "npm $how failed; see build/$what/npm.log, and tools/install-clients.sh $what tries again"
