"""Cells of tables as numbers, the ways people write them: 1.5, 1,5, $1,000 and 5 %."""

from __future__ import annotations

import math
import re

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_MONEY = re.compile(r"([+-]?)\s*(?:[$€£¥]\s*([\d.,]+)|([\d.,]+)\s*[$€£¥])")
# Cents have at most two digits, after another mark than that of thousands.
_AMOUNT = re.compile(r"(\d{1,3}(?:([.,])\d{3}(?:\2\d{3})*)?|\d+)(?:(?!\2)[.,](\d{1,2}))?")


def is_number(cell: str) -> bool:
    """Whether a cell is a number in the notation of Python, without underscores.

    >>> is_number("-1e3"), is_number("1,5"), is_number("1_2")
    (True, False, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with a decimal comma, as in much of Europe.

    >>> has_decimal_comma("-1.234,5"), has_decimal_comma("1,2,3")
    (True, False)
    """
    return _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def has_thousands(cell: str) -> bool:
    """Whether commas in a cell can separate thousands. In `1,234` the comma may be decimal, too.

    >>> has_thousands("1,234"), has_thousands("1,234,567.5"), has_thousands("1,25")
    (True, True, False)
    """
    return _THOUSANDS.fullmatch(cell.strip()) is not None


def parsed_number(cell: str) -> float:
    """A cell as a number, which may have a decimal comma, commas between thousands, a sign of money
    or a percent sign; NaN if it is not a number. `5 %` is 5.

    >>> parsed_number("-3.5"), parsed_number("1,25"), parsed_number("1_000"), parsed_number("x")
    (-3.5, 1.25, nan, nan)
    >>> parsed_number("$1,234"), parsed_number("-1.000,50 €"), parsed_number("5 %")
    (1234.0, -1000.5, 5.0)
    """
    text = cell.strip()
    if is_number(text):
        return float(text)
    if text.endswith("%"):
        return parsed_number(text[:-1])
    if has_decimal_comma(text):
        return float(text.replace(".", "").replace(",", "."))
    if has_thousands(text):
        return float(text.replace(",", ""))
    money = _MONEY.fullmatch(text)
    amount = money and _AMOUNT.fullmatch(money[2] or money[3])
    if money and amount:
        return float(f"{money[1]}{re.sub('[.,]', '', amount[1])}.{amount[3] or 0}")
    return math.nan


def number_text(x: float) -> str:
    """A number as a string; whole numbers have no decimal point.

    >>> number_text(3.0), number_text(0.25)
    ('3', '0.25')
    """
    return str(int(x)) if float(x).is_integer() and abs(x) < 2**53 else repr(float(x))


def is_decorated(cell: str) -> bool:
    """Whether a cell is a number only to people: with commas, a sign of money or a percent sign.

    >>> is_decorated("$5"), is_decorated("1,5"), is_decorated("5"), is_decorated("five")
    (True, True, False, False)
    """
    return not is_number(cell) and not math.isnan(parsed_number(cell))


def not_a_number(cell: str) -> str:
    """Why a cell is not a number, and how to fix it, for error messages."""
    if has_decimal_comma(cell) and has_thousands(cell):
        return (f"{cell!r} has a comma; write {cell.strip().replace(',', '')} if it separates "
                f"thousands, {cell.strip().replace(',', '.')} if it is decimal")
    if has_decimal_comma(cell):
        return (f"{cell!r} has a decimal comma; write {number_text(parsed_number(cell))} "
                "(pandas.read_csv(path, sep=';', decimal=',') reads such files)")
    if is_decorated(cell):
        return (f"{cell!r} is not a plain number; write {number_text(parsed_number(cell))}, or use "
                "zt.data.table, which reads it")
    if not cell.strip():
        return "the cell is empty; fill gaps first"
    return (f"{cell!r} is not a number; encode strings as numbers first, or use zt.data.csv, which "
            "does")
