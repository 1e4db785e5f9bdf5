#!/bin/sh
# Install the browser that the tests of the report page look through (Debian and Ubuntu; needs root).
exec "$(dirname "$0")/debian_packages.sh" chromium -- chromium fonts-dejavu-core
