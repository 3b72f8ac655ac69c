"""The machines that only the interpreter plays, by name."""

from __future__ import annotations

from tests.parity import GROUPS, NARROW, SCALAR, SUBGROUPS, WIDE

INTERPRETED = {"one lane": SCALAR, "few lanes": NARROW, "many lanes": WIDE, "groups": GROUPS, "subgroups": SUBGROUPS}
