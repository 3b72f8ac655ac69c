"""What our source files say: their syntax, read once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

KINDS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the fields that hold statements


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax of a file."""
    return ast.parse(path.read_text())


@functools.cache
def statements(path: Path) -> list[Any]:
    """The imports, classes and functions of a file. No expression is looked into: `ast.walk` takes ten times as
    long."""
    nodes: list[Any] = [*tree(path).body]
    for node in nodes:  # which grows
        for name in BLOCKS:
            nodes += getattr(node, name, ())
    return [node for node in nodes if isinstance(node, KINDS)]
