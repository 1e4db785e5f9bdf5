"""A forge for checkpoints."""

import pytest

from forging import Forge


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture(scope="session")
def session_forge():
    return Forge()
