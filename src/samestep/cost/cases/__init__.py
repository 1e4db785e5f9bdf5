"""Case files: what a user writes, read with its place, checked as a whole."""
