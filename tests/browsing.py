"""Pages in a reader's browser, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: run scripts/install_chromium.sh")

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=NetworkTimeServiceQuerying,OptimizationHints,MediaRouter,Translate",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=8000",
]


BROWSERS_OWN = re.compile(r"https?://[^/]*\.(?:google|googleapis)\.com/")


def browse(folder, page, *options):
    """Load a page and return the document after its scripts ran, and what the browser logged."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *options, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def fetched(log):
    """Return what a page asked of the network, by the browser's own log; nothing leaves the machine."""
    urls = re.findall(r'"url":"((?:https?|wss?)://[^"]*)"', log.read_text())
    return [url for url in urls if not BROWSERS_OWN.match(url)]
