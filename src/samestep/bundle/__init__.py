"""Complete, verified, atomically committed states of a run, on local disk and object stores."""
