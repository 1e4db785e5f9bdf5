"""Children of a process: each does one thing and ends."""

from __future__ import annotations

import os
import sys
import traceback


def in_a_child(act):
    """Do something in a child of this process; return how the child ended, as ``waitpid`` says it."""
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    status = 1
    try:
        act()
        status = 0
    except BaseException:  # noqa: BLE001 - a child must never go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
