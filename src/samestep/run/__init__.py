"""The run API: state, data, notices and the bundle store, composed in a training loop."""

from .lineage import load_weights, new_run
from .policies import Auto, Every
from .run import Run

__all__ = ["Auto", "Every", "Run", "load_weights", "new_run"]
