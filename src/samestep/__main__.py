"""``python -m samestep``."""

from samestep.cli.main import main

main()
