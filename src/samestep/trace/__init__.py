"""What a probe writes and a drill reads: the step record, its file format, and the orders to a probe.

Standard library only: this package is loaded inside foreign training processes.
"""

from .orders import ORDERS_VARIABLE, Orders, ParkPoint
from .reading import Trace, load_traces, read_trace
from .records import (
    SCHEMA,
    Average,
    EndRecord,
    EventRecord,
    Header,
    MicroStep,
    Quantity,
    State,
    StepRecord,
    Update,
)

__all__ = [
    "ORDERS_VARIABLE",
    "SCHEMA",
    "Average",
    "EndRecord",
    "EventRecord",
    "Header",
    "MicroStep",
    "Orders",
    "ParkPoint",
    "Quantity",
    "State",
    "StepRecord",
    "Trace",
    "Update",
    "load_traces",
    "read_trace",
]
