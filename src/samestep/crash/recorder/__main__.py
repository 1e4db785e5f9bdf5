"""Run a command under the recorder: ``python -I __main__.py ORDER COMMAND...``; see `supervisor_command`."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]


def main() -> int:
    """Carry out the order given as the first argument on the command behind it."""
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
    import msgspec

    from samestep.crash.recorder.order import Order
    from samestep.crash.recorder.supervisor import supervise

    return supervise(msgspec.json.decode(sys.argv[1], type=Order), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
