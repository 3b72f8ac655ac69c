"""The outcome of ONNX's own tests: tables of docs/onnx.md, the list of those that do not pass."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping
from pathlib import Path

from tools.onnx_cases import KINDS, OUTCOMES, Verdict

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "onnx.md"
EXCEPTIONS = ROOT / "tests" / "interchange" / "onnx_exceptions.txt"
MARKERS = "<!-- onnx suite -->", "<!-- end of onnx suite -->"

Verdicts = Mapping[str, tuple[str, Verdict]]  # the kind and the verdict of each case, by name


def counted(verdicts: Verdicts) -> str:
    """How many cases of each kind have each outcome."""
    counts = collections.Counter((kind, v.outcome) for kind, v in verdicts.values())
    lines = ["| outcome | " + " | ".join(KINDS) + " | all | |",
             "| --- |" + " --- |" * (len(KINDS) + 2)]
    for outcome, meaning in OUTCOMES.items():
        row = [counts[kind, outcome] for kind in KINDS]
        lines.append(f"| {outcome} | " + " | ".join(map(str, (*row, sum(row))))
                     + f" | {meaning} |")
    return "\n".join(lines)


def reasons(verdicts: Verdicts) -> str:
    """Why the others do not pass, the most frequent reason first."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, (_, v) in verdicts.items():
        if v.outcome not in ("pass", "shape"):
            reason, _, _ = v.reason.partition(" of output")
            reason = re.sub(r"'[^']*' (has|is a) ", r"a tensor \1 ", reason)
            reason = re.sub(r"^test_\w+ has", "a file has", reason)
            reason = re.sub(r"^(\w+) '[^']*': ", r"\1: ", reason)
            alike.setdefault((v.outcome, reason.strip()), []).append(name.removeprefix("test_"))
    lines = ["| cases | outcome | reason | such as |", "| --- | --- | --- | --- |"]
    for (outcome, reason), names in sorted(alike.items(), key=lambda row: -len(row[1])):
        lines.append(f"| {len(names)} | {outcome} | {reason} | `{names[0]}` |")
    return "\n".join(lines)


def section(verdicts: Verdicts) -> str:
    """The part of docs/onnx.md about the suite."""
    fixed = sum(bool(v.fixed) for _, v in verdicts.values() if v.outcome == "pass")
    return f"""
{counted(verdicts)}

In {fixed} of the cases that pass, inputs that decide about shapes or positions are given as
constants while importing, as `load_layer(path, constants=...)` does. Those that do not pass:

{reasons(verdicts)}

"""


def exceptions() -> dict[str, tuple[str, str]]:
    """The cases that are known not to pass: outcome and reason by name."""
    rows = [line.split("\t") for line in EXCEPTIONS.read_text().splitlines()
            if line and not line.startswith("#")]
    return {name: (outcome, reason) for name, outcome, reason in rows}


def write(verdicts: Verdicts) -> None:
    """Writes the section and the list of exceptions."""
    rows = [f"{name}\t{v.outcome}\t{v.reason}" for name, (_, v) in sorted(verdicts.items())
            if v.outcome != "pass"]
    EXCEPTIONS.write_text("# Cases of ONNX's suite that do not pass, or pass by shape alone, with "
                          "the reason.\n# Written by python -m tools.onnx_suite --write.\n"
                          + "\n".join(rows) + "\n")
    before, _, rest = PAGE.read_text().partition(MARKERS[0])
    _, _, after = rest.partition(MARKERS[1])
    PAGE.write_text(before + MARKERS[0] + section(verdicts) + MARKERS[1] + after)


def difference(name: str, verdict: Verdict, listed: Mapping[str, tuple[str, str]]) -> str:
    """How a verdict differs from the list; empty where it does not. A result that rounds on one
    processor may be equal on another."""
    expected, _ = listed.get(name, ("pass", ""))
    if verdict.outcome in (expected, "pass" if expected == "rounding" else expected):
        return ""
    return f"{name}: {verdict.outcome}, not {expected}: {verdict.reason}"
