"""Offers of capacity: an own table, and importers that report what is odd in a catalogue and never guess."""

from .importing import read_offers
from .quirks import LISTED, QUIRKS, Quirk, Read, Wanted
from .table import read_table, write_offers

__all__ = ["LISTED", "QUIRKS", "Quirk", "Read", "Wanted", "read_offers", "read_table", "write_offers"]
