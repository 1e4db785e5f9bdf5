"""Object stores on loopback, and a proxy in front of each that breaks chosen requests."""

import pytest

from servers import emulators
from servers.fault_proxy import FaultProxy

SERVERS = ("s3", "az", "gs")


@pytest.fixture(scope="module", params=SERVERS)
def emulator(request):
    try:
        return emulators.running(request.param)
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def proxy(emulator):
    with FaultProxy(emulator.port) as proxy:
        yield proxy
