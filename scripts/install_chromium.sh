#!/bin/sh
# Install the browser that the tests of the report page look through (Debian and Ubuntu; needs root).
set -eu

if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
chromium --version 2>/dev/null
