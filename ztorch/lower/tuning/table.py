"""The rows of the table of tuned constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

Tuned = TypeVar("Tuned")

CHOSEN = "chosen, not measured"


@dataclass(frozen=True)
class TunedConstant:
    """One row of the table."""

    name: str
    value: Any
    unit: str
    meaning: str
    evidence: str  # how it was measured, or that it was chosen


_TABLE: dict[str, TunedConstant] = {}


def row(name: str, value: Tuned, unit: str, meaning: str, evidence: str) -> Tuned:
    """Adds a row to the table and returns its value.

    Args:
        name: The name of the constant, which is that of the variable.
        value: A number, or a tuple of choices that are tried in this order.
        unit: The unit of the number.
        meaning: The decision that the constant controls.
        evidence: How it was measured, or that it was chosen.
    """
    assert name not in _TABLE, f"two rows are called {name}"
    _TABLE[name] = TunedConstant(name, value, unit, meaning, evidence)
    return value


def constants() -> tuple[TunedConstant, ...]:
    """Every tuned constant of lowering.

    >>> from ztorch.lower.tuning import constants
    >>> next(c for c in constants() if c.name == "K_UNROLL").unit
    'steps along k'
    """
    return tuple(_TABLE.values())
