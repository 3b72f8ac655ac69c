"""Parses dates and times, in the formats that tables use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y%m%d")
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S.%f",
          " %H:%M:%S%z", "T%H:%M:%S%z", "T%H:%M:%S.%f%z")
FORMATS = tuple(day + time for day in _DAYS for time in _TIMES)  # of Python's strptime


def parsed_date(text: str, pattern: str) -> datetime | None:
    """A date, in UTC if it has a time zone; None if the string has another format.

    >>> parsed_date("24.12.2023", "%d.%m.%Y")
    datetime.datetime(2023, 12, 24, 0, 0)
    """
    try:
        date = datetime.strptime(text, pattern)
    except ValueError:
        return None
    return date if date.tzinfo is None else date.astimezone(timezone.utc).replace(tzinfo=None)


def date_format(texts: Iterable[str]) -> str | None:
    """The first format that fits all strings; None if there is none. Whether days come before
    months is decided by all strings together.

    >>> date_format(["01/02/2024", "13/02/2024"])
    '%d/%m/%Y'
    """
    patterns = list(FORMATS)
    for text in texts:
        if len(text) < 8 or not any(c.isdigit() for c in text):
            return None
        patterns = [p for p in patterns if parsed_date(text, p) is not None]
        if not patterns:
            return None
    return patterns[0] if len(patterns) < len(FORMATS) else None
