"""samestep: prove, step by step, that a restarted training run is the same run."""

__version__ = "0.1.0"

__all__ = ["__version__"]
