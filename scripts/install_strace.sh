#!/bin/sh
# Install strace, which the tests hold recordings of file operations against (Debian and Ubuntu; needs root).
exec "$(dirname "$0")/debian_packages.sh" strace -- strace
