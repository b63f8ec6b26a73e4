#!/bin/sh
# version.sh - the version that include/radish/radish.h has: 0.2.0.
sed -n 's/^#define RAD_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' \
    "$(dirname "$0")/../include/radish/radish.h" | paste -s -d .
