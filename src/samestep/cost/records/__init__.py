"""What a run's own records show: its attempts, what was measured, and its two ledgers so far."""
