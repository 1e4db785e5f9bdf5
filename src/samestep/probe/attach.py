"""Attaches the probe to torch, once, right after torch was imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..trace import ORDERS_VARIABLE, Orders

_ATTACHED = "_samestep_session"


def attach(torch: Any) -> None:
    """Read the orders and begin to watch.

    Raises:
        OSError, ValueError, TypeError: the orders cannot be read.
    """
    if hasattr(torch, _ATTACHED):
        return
    from . import hooks
    from .session import Session

    orders = Orders.read(Path(os.environ[ORDERS_VARIABLE]))
    session = Session(orders)
    session.begin()
    hooks.install(session)
    if orders.looks:
        from .looks import Looks

        Looks(orders.looks, orders.durable).install(torch)
    setattr(torch, _ATTACHED, session)
