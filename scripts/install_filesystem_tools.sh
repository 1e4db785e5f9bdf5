#!/bin/sh
# Install mkfs for ext4 and xfs, on which the tests look for what a power cut really leaves (Debian and Ubuntu; needs root).
set -eu

if command -v mkfs.ext4 >/dev/null 2>&1 && command -v mkfs.xfs >/dev/null 2>&1; then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends e2fsprogs xfsprogs >/dev/null
mkfs.xfs -V
