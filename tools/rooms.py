"""docs/pictures/rooms.svg: the rooms of the table in docs/rooms.md as two staircases.

    python -m tools.rooms > docs/pictures/rooms.svg

A room is one floor above the highest room that it imports. A line is an import that does not
follow from others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

Rooms = dict[str, set[str]]

ROOT = Path(__file__).parent.parent
# The columns, and the rooms in them; the first column has all others.
COLUMNS = ("declared and called by users", "compile side", "run side")
COMPILE_SIDE = {"compile", "artifact", "codegen", "lower", "ops", "graph", "ir", "machines",
                "tune", "verify"}
RUN_SIDE = {"program", "training", "feed", "callbacks", "runtime", "backends", "files", "host",
            "tabular"}
COLORS = ("#7a5cd6", "#2f6fdb", "#2a9d62")

FLOOR, HIGH, GAP = 62, 30, 12  # heights of a floor and a room, space between rooms
MARGIN, BETWEEN, NARROWEST = 20, 32, 270  # beside columns, between them, and their least width
TOP = 46


def table(text: str) -> tuple[list[str], Rooms]:
    """The ground floor, and room -> rooms that it imports.

    >>> ground, rooms = table((ROOT / "docs/rooms.md").read_text())
    >>> "errors" in ground, "graph" in rooms["ops"]
    (True, True)
    """
    ground: list[str] = []
    rooms: Rooms = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            names = [n.rstrip("/") for n in re.findall(r"`([\w/]+)`", cells[1])]
            if not ground:
                ground = names
                continue
            below = {n.rstrip("/") for n in re.findall(r"`([\w/]+)`", cells[3])} - set(ground)
            rooms |= dict.fromkeys(names, below)
    return ground, rooms


def floors(rooms: Rooms) -> dict[str, int]:
    """The floor of each room; those that import no other are on floor 0.

    >>> floors({"a": set(), "b": {"a"}, "c": {"a", "b"}})
    {'a': 0, 'b': 1, 'c': 2}
    """
    level: dict[str, int] = {}
    while len(level) < len(rooms):
        for room, below in rooms.items():
            if room not in level and below <= level.keys():
                level[room] = 1 + max((level[b] for b in below), default=-1)
    return {room: level[room] for room in rooms}


def lines(rooms: Rooms) -> list[tuple[str, str]]:
    """Imports that are not implied by others.

    >>> lines({"a": set(), "b": {"a"}, "c": {"a", "b"}})
    [('b', 'a'), ('c', 'b')]
    """
    def reach(room: str) -> set[str]:
        return rooms[room].union(*(reach(b) for b in rooms[room]))

    return [(room, b) for room, below in rooms.items() for b in sorted(below)
            if not any(b in reach(lower) for lower in below)]


def column(room: str) -> int:
    return 1 if room in COMPILE_SIDE else 2 if room in RUN_SIDE else 0


def _width(room: str) -> float:
    return 14 + 8.2 * len(room)


def rows(rooms: Rooms) -> list[list[list[str]]]:
    """The rooms of each floor of each column, the lowest first."""
    level = floors(rooms)
    return [[[r for r in rooms if level[r] == floor and column(r) == k]
             for floor in range(max(level.values()) + 1)] for k in range(len(COLUMNS))]


def sides(rooms: Rooms) -> list[tuple[float, float]]:
    """Left edge and width of each column: as wide as its widest floor."""
    out, left = [], float(MARGIN)
    for stack in rows(rooms):
        width = max(NARROWEST, *(sum(map(_width, row)) + GAP * (len(row) - 1) for row in stack))
        out.append((left, width))
        left += width + BETWEEN
    return out


def places(rooms: Rooms) -> dict[str, tuple[float, float, float]]:
    """Left edge, top edge and width of each room."""
    out: dict[str, tuple[float, float, float]] = {}
    for (left, width), stack in zip(sides(rooms), rows(rooms), strict=True):
        highest = len(stack) - 1
        for floor, row in enumerate(stack):
            wide = [_width(r) for r in row]
            x = left + (width - sum(wide) - GAP * (len(row) - 1)) / 2
            for room, w in zip(row, wide, strict=True):
                out[room] = x, TOP + (highest - floor) * FLOOR, w
                x += w + GAP
    return {room: out[room] for room in rooms}


def picture(text: str) -> str:
    """The SVG."""
    ground, rooms = table(text)
    place, columns = places(rooms), sides(rooms)
    picture_width = sum(columns[-1]) + MARGIN
    bottom = max(y for _, y, _ in place.values()) + HIGH
    height = bottom + 78
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture_width:g} {height:g}" '
           'font-family="ui-monospace, monospace" font-size="13">',
           "<title>The rooms of ztorch: imports go down only</title>",
           f'<rect width="{picture_width:g}" height="{height:g}" fill="#ffffff"/>']
    for (left, width), title, color in zip(columns, COLUMNS, COLORS, strict=True):
        out += [_box(left - 8, 8, width + 16, bottom + 4, color, 0.07),
                _text(left + width / 2, 28, title, color, 'font-weight="bold"')]
    out += [_line(place[a], place[b]) for a, b in lines(rooms)]
    for room, (x, y, w) in place.items():
        color = COLORS[column(room)]
        out += [_box(x, y, w, HIGH, color, 1), _text(x + w / 2, y + 20, room, "#ffffff")]
    out += [_box(12, bottom + 24, picture_width - 24, HIGH + 8, "#5b7083", 1),
            _text(picture_width / 2, bottom + 48, "ground floor: " + "  ".join(ground), "#ffffff"),
            "</svg>"]
    return "\n".join(out) + "\n"


def _box(x: float, y: float, w: float, h: float, color: str, opacity: float) -> str:
    return (f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{color}" '
            f'fill-opacity="{opacity:g}"/>')


def _text(x: float, y: float, text: str, color: str, more: str = "") -> str:
    return (f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{color}" {more}>'
            f"{escape(text)}</text>")


def _line(above: tuple[float, float, float], below: tuple[float, float, float]) -> str:
    x, y = above[0] + above[2] / 2, above[1] + HIGH
    to_x, to_y = below[0] + below[2] / 2, below[1]
    bend = (to_y - y) / 2
    way = f"M{x:g} {y:g} C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"
    return (f'<path d="{way}" fill="none" stroke="#8a94a3" stroke-width="1.1" '
            'stroke-opacity="0.75"/>')


def checked(rooms: Mapping[str, set[str]], place: Mapping[str, tuple[float, float, float]]) -> bool:
    """Whether every room is drawn above all that it imports, and none over another."""
    down = all(place[a][1] < place[b][1] for a, below in rooms.items() for b in below)
    disjoint = all(a == b or place[a][1] != place[b][1] or place[a][0] + place[a][2] <= place[b][0]
                   or place[b][0] + place[b][2] <= place[a][0] for a in place for b in place)
    return down and disjoint


if __name__ == "__main__":
    print(picture((ROOT / "docs/rooms.md").read_text()), end="")
