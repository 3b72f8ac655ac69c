"""ztorch/names/places.py: which file defines each layer, op, loss, metric and so on.

    python -m tools.places --write

Importing every file fills the registries. This writes down where their members are defined.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ztorch.config import Named
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.names.class_names import is_ours

FILE = Path(__file__).parent.parent / "ztorch/names/places.py"
ROOMS = ("constraints", "initializers", "layers", "losses", "metrics", "ops", "optimizers",
         "regularizers")
WIDTH = 96  # of a line without quotes, a space between words and a comma
HEAD = '''"""Which file of a room defines which members: classes under all their names, and ops.

`python -m tools.places --write` writes this file; `members.py` reads it.
"""

from __future__ import annotations

'''


def members() -> Iterator[tuple[str, str, str]]:
    """The room, file and name of each member of the package."""
    for room in ROOMS:
        package = importlib.import_module(f"ztorch.{room}")
        for file in pkgutil.iter_modules(package.__path__):
            if not file.name.startswith(("complex_", "kernel_")):  # these register no public op
                importlib.import_module(f"ztorch.{room}.{file.name}")
    known = [(name, kind) for family in Named.families for name, kind in family.known.items()
             if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind]
    for name, member in (*known, *((name, op.call) for name, op in REGISTRY.items())):
        if is_ours(member):
            _, room, *file = member.__module__.split(".")
            if room in ROOMS:
                yield room, file[0], name


def text() -> str:
    """The whole file.

    >>> '"losses": {' in text()
    True
    """
    names: dict[str, dict[str, list[str]]] = {room: {} for room in ROOMS}
    for room, file, name in members():
        names[room].setdefault(file, []).append(name)
    lines = ["PLACES: dict[str, dict[str, str]] = {"]
    for room in ROOMS:
        lines.append(f'    "{room}": {{')
        for file, own in sorted(names[room].items()):
            lines.append(_strings(f'        "{file}": ', sorted(own)) + ",")
        lines.append("    },")
    pairs = [f"{alias}:{name}" for alias, name in sorted(ALIASES.items())]
    lines += ["}", "", "# Other names of ops, each with the op's own.", "OTHER_NAMES = (",
              _strings("    ", pairs), ")"]
    return HEAD + "\n".join([*lines, ""])


def _strings(head: str, words: list[str]) -> str:
    """Words as adjacent string literals, a line each, the first after `head`."""
    indent = " " * (len(head) - len(head.lstrip()) + (4 if head.strip() else 0))
    lines = textwrap.wrap(" ".join(words), WIDTH - len(indent), break_long_words=False,
                          initial_indent=" " * (len(head) - len(indent)))
    return "\n".join(
        f"{indent if k else head}\"{line.strip()}{' ' if k < len(lines) - 1 else ''}\""
        for k, line in enumerate(lines))


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(text())
    else:
        print(text(), end="")
