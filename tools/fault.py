"""A known fault: a change that makes the program wrong."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One change that makes the program wrong."""

    room: str  # whose it is
    file: str  # relative to the root
    old: str  # occurs once in the file
    new: str  # the replacement
    tests: str  # tests that should fail, below tests/, separated by spaces
