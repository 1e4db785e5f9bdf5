"""Reports: pure view data from a drill's result, and the forms it is shown in."""

from .files import decode_result, encode_result, find_result, load_result, write_reports
from .terminal import TerminalReport, render_scenario_line, render_terminal

__all__ = [
    "TerminalReport",
    "decode_result",
    "encode_result",
    "find_result",
    "load_result",
    "render_scenario_line",
    "render_terminal",
    "write_reports",
]
