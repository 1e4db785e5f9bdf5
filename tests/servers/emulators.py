"""Object stores on loopback, each started once per test process: ``running("s3")`` and the like.

They speak the providers' protocols: moto for S3, azurite for Azure, a small stub for Google Cloud Storage, for
which no emulator honours conditions. ``opened`` opens a storage on one, through a fault proxy if asked to.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import email.utils
import functools
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from unittest import mock

from samestep.bundle.storage.objects import Patience, open_object_store
from servers.gcs_stub import GcsStub

ROOT = Path(__file__).parents[2]
NAMES = ("memory", "s3", "az", "gs")
CONTAINER = "bundles"
QUICK = Patience(
    retries=3, first_wait_seconds=0.02, longest_wait_seconds=0.1, give_up_seconds=30, request_seconds=30
)
START_SECONDS = 60
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the emulator, the same everywhere and published by its makers."""

WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends even when the tests are killed
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Unavailable(Exception):  # noqa: N818
    """An emulator cannot run here; the text says what is missing."""


@dataclasses.dataclass(frozen=True)
class Emulator:
    name: str
    port: int

    def url(self, prefix):
        return "memory:" if self.name == "memory" else f"{self.name}://{CONTAINER}/{prefix}"

    def environment(self, port=None):
        """Return what the client must find in the environment to reach this emulator, or a proxy's port."""
        return _ENVIRONMENTS[self.name](f"http://127.0.0.1:{port or self.port}")

    def opened(self, prefix=None, *, port=None, patience=QUICK):
        """Open a storage below ``prefix``; a fresh one each time if none is given."""
        with mock.patch.dict(os.environ, self.environment(port)):
            return open_object_store(self.url(prefix or uuid.uuid4().hex), patience=patience)

    def unfinished_uploads(self, prefix):
        """Return the keys below ``prefix`` of uploads that were neither completed nor taken back (not on Azure)."""
        address = f"http://127.0.0.1:{self.port}/{CONTAINER}?uploads"
        keys = re.findall(r"<Key>(.*?)</Key>", _request("GET", address).decode())
        return [key for key in keys if key.startswith(f"{prefix}/")]


def running(name):
    """Return the emulator of that name, started if need be and ended with this process.

    Raises:
        Unavailable: it cannot run here.
    """
    emulator = _started(name)
    if isinstance(emulator, Unavailable):
        raise emulator
    return emulator


@functools.cache
def _started(name):
    """Return the emulator, or why there is none: a start that failed is not tried again for every test."""
    try:
        return {"memory": _memory, "s3": _moto, "az": _azurite, "gs": _gcs}[name]()
    except Unavailable as missing:
        return missing


def _memory():
    return Emulator("memory", 0)


def _moto():
    port = _free_port()
    _start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
    _request("PUT", f"http://127.0.0.1:{port}/{CONTAINER}")
    return Emulator("s3", port)


def _gcs():
    stub = GcsStub(CONTAINER)
    atexit.register(stub.close)
    return Emulator("gs", stub.port)


def _azurite():
    home = Path(os.environ.get("SAMESTEP_AZURITE") or ROOT / ".venv" / "azurite")
    command = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node")
    if not node or not command.exists():
        raise Unavailable("azurite is not installed: scripts/install_azurite.sh does it, with node and npm")
    port = _free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    _start([node, str(command), "--blobPort", str(port), *options], port)
    _create_azure_container(port)
    return Emulator("az", port)


def _create_azure_container(port):
    """Create the container, signed with the emulator's key; the client under test cannot do it."""
    date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
    resource = f"/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/{CONTAINER}"
    empty = "\n" * 12  # the headers that a request with a body would have
    signed = f"PUT{empty}x-ms-date:{date}\nx-ms-version:{version}\n{resource}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURITE_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {AZURITE_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    _request("PUT", f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}/{CONTAINER}?restype=container", headers)


def _s3_environment(endpoint):
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
        "AWS_REGION": "us-east-1",
    }


def _azure_environment(endpoint):
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint}


def _gcs_environment(endpoint):
    account = {"gcs_base_url": endpoint, "disable_oauth": True}
    account |= {"client_email": "", "private_key": "", "private_key_id": ""}
    return {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


_ENVIRONMENTS = {
    "memory": lambda _endpoint: {},
    "s3": _s3_environment,
    "az": _azure_environment,
    "gs": _gcs_environment,
}


def _start(command, port):
    """Start a server and return once it listens on ``port``."""
    shim = [sys.executable, "-c", WITH_PARENT, *command]
    process = subprocess.Popen(shim, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(_stop, process)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Unavailable(
        f"{' '.join(command[:3])} did not start (status {process.poll()}, {START_SECONDS} s at most)"
    )


def _stop(process):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def _request(method, url, headers=None):
    request = urllib.request.Request(url, method=method, headers=headers or {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()
