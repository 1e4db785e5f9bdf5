#!/bin/sh
# Install strace, which the tests hold recordings of file operations against (Debian and Ubuntu; needs root).
set -eu

if command -v strace >/dev/null 2>&1; then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends strace >/dev/null
strace --version | head -n 1
