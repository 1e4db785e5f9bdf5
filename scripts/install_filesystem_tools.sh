#!/bin/sh
# Install mkfs for ext4 and xfs, on which the tests look for what a power cut really leaves (Debian and Ubuntu; needs root).
exec "$(dirname "$0")/debian_packages.sh" mkfs.ext4 mkfs.xfs -- e2fsprogs xfsprogs
