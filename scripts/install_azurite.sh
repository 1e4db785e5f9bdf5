#!/bin/sh
# Install Azure's storage emulator for the tests into .venv/azurite (needs node and npm; about 360 MB).
set -eu

cd "$(dirname "$0")/.."
version=3.37.0
target=.venv/azurite
main=$target/node_modules/azurite/dist/src/blob/main.js

if [ -f "$main" ] && grep -q "\"version\": \"$version\"" "$target/node_modules/azurite/package.json"; then
    exit 0
fi
if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
    echo "azurite needs node and npm, and they are not installed" >&2
    exit 1
fi
mkdir -p "$target"
timeout 300 npm install --prefix "$target" --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error "azurite@$version" >/dev/null
test -f "$main"
echo "azurite $version"
