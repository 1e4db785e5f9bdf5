#!/bin/sh
# Install Debian packages unless certain commands are there: debian_packages.sh COMMAND... -- PACKAGE... (needs root).
# One caller at a time: apt gives up when another one holds its lock.
set -eu

missing=
while [ "$1" != -- ]; do
    command -v "$1" >/dev/null 2>&1 || missing="$missing $1"
    shift
done
shift
test -n "$missing" || exit 0

exec 9<"$0"
flock 9
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
for command in $missing; do
    command -v "$command"
done
