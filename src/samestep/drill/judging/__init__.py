"""Judging a restarted run: align it with the control, compare, diagnose. Pure functions over traces."""
