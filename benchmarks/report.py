"""The measurements, as Markdown tables, as JSON, and as a plot of the ratios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing import Timing

# The first word that a name holds decides.
PEERS = {"fused": "#c9a227", "eager": "#e8702a", "compile": "#7a5cd6", "export": "#b23a8e",
         "numpy": "#2a9d62", "numba": "#5a8a8a", "onnx": "#2f6fdb", "keras": "#d0312d"}
OWN = ("levels",)  # comparisons of ztorch with itself have no place among the peers


@dataclass
class Section:
    """One table. `limit` names the bottleneck of the best possible program."""

    key: str
    title: str
    limit: str
    names: list[str] = field(default_factory=list)  # contestants, in order
    lines: list[dict[str, str]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def compared(self, case: str, threads: int | None, timings: Sequence[Timing], error: float,
                 **more: str) -> None:
        """A line of a comparison: the first timing is ours. Devices have no number of threads."""
        line = {"case": case, **({"threads": str(threads)} if threads else {}), **more}
        for k, t in enumerate(timings):
            if t.name not in self.names:
                self.names.append(t.name)
            line[t.name] = _spread(t) if k == 0 else _against(t)
            self.results.append({"case": case, "threads": threads, "max_error": error,
                                 **more, **t.to_json()})
        line["max error"] = f"{error:.1e}"
        self._add(line)
        if threads == 1 and any(t.clocks_differ for t in timings):
            self.note(f"{case}, 1 thread, wall clock (the core was shared): "
                      + ", ".join(f"{t.name} {duration(t.wall)}" for t in timings))

    def failed(self, case: str, error: BaseException, status: str = "failed", **more: str) -> None:
        """A line for a failed measurement; the reason is a note below the table."""
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        self._add({"case": case, **more, "max error": f"**{status}**"})
        self.results.append({"case": case, **more, status: reason})
        self.note(f"{', '.join((case, *more.values()))}: {reason}")

    def line(self, values: Mapping[str, str], **data: Any) -> None:
        """A line of a plain table."""
        self._add(dict(values))
        self.results.append({**values, **data})

    def _add(self, line: dict[str, str]) -> None:
        self.lines.append(line)
        print("  " + " | ".join(f"{k} {v}" if k not in ("case",) else v
                                for k, v in line.items()), flush=True)

    def has(self, case: str, device: str) -> bool:
        """Whether a case was measured on a device already; failures are tried again."""
        return any(line["case"] == case and line.get("device") == device
                   and line.get("max error") != "**failed**" for line in self.lines)

    def after(self, before: Section | None) -> Section:
        """The same, with lines of an earlier run that were not measured again."""
        if before is None:
            return self
        again = {_key(line) for line in self.lines}
        kept = [[line for line in of if _key(line) not in again]
                for of in (before.lines, before.results)]
        names, notes = (list(dict.fromkeys(earlier + later)) for earlier, later in (
            (before.names, self.names), (before.notes, self.notes)))
        return Section(self.key, self.title, self.limit, names, kept[0] + self.lines,
                       kept[1] + self.results, notes)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            print(f"  note: {text}", flush=True)

    @property
    def columns(self) -> list[str]:
        seen = dict.fromkeys(k for line in self.lines for k in line)
        last = [k for k in ("max error",) if k in seen]
        front = [k for k in seen if k not in self.names and k not in last]
        ours_first = sorted(self.names, key=lambda n: not n.startswith("ztorch"))
        return [*front, *(n for n in ours_first if n in seen), *last]

    def markdown(self) -> str:
        columns = self.columns
        rows = [columns, ["---"] * len(columns),
                *([line.get(c, "–") for c in columns] for line in self.lines)]
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        notes = "".join(f"\n- {n}" for n in self.notes)
        return (f"## {self.title}\n\n{table}\n\nLimit: {self.limit}\n"
                + (f"{notes}\n" if notes else ""))

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "title": self.title, "limit": self.limit, "names": self.names,
                "lines": self.lines, "results": self.results, "notes": self.notes}


def _key(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The subject of a line of a table, or a result of it."""
    about = ("case", "threads", "device", "what", "function", "steps")
    return tuple(str(line.get(name)) for name in about)


def sections(path: Path) -> dict[str, Section]:
    """The sections of a file that `write` wrote, by their keys, without failed lines; none
    where there is no such file."""
    if not path.exists():
        return {}
    kept = [Section(**section) for section in json.loads(path.read_text("utf-8"))["sections"]]
    for s in kept:
        failed = [r for r in s.results if "failed" in r]
        s.results = [r for r in s.results if "failed" not in r]
        s.lines = [line for line in s.lines if line.get("max error") != "**failed**"]
        s.notes = [n for n in s.notes if not any(r["failed"] in n for r in failed)]
    return {s.key: s for s in kept}


def duration(seconds: float) -> str:
    """Three digits and a unit.

    >>> duration(0.00012345), duration(1.5)
    ('123 µs', '1.50 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{_digits(seconds * scale)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _digits(x: float) -> str:
    return f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"


def _spread(t: Timing) -> str:
    return f"{duration(t.seconds)} ({duration(t.p10)}–{duration(t.p90)})"


def _against(t: Timing) -> str:
    low, middle, high = map(_ratio, (t.ratio_p10, t.ratio, t.ratio_p90))
    return f"{duration(t.seconds)} = **x{middle}** ({low}–{high})"


def _ratio(x: float) -> str:
    return f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"


CPU = (
    "Times are medians of interleaved blocks with the 10th and 90th percentile. `xN` is "
    "the peer's time over ours: the median, 10th and 90th percentile of the ratios within "
    "one turn. One thread is timed by its CPU clock, several by the wall clock. The "
    "largest error is against float64 unless the table says otherwise.")


def write(folder: Path, stem: str, machine: Mapping[str, Any], sections: Sequence[Section],
          quick: bool, title: str = "CPU benchmarks", method: str = CPU) -> list[Path]:
    """Writes Markdown, JSON and, of rows with threads and where matplotlib is there, the plot;
    gives the paths. `method` says how it was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    warning = ("**A smoke run: far too few rounds for the figures to mean anything.**\n\n"
               if quick else "")
    facts = "\n".join(f"- {k}: {_fact(v)}" for k, v in machine.items())
    text = (f"# {title}, {machine['date']}\n\n{warning}{facts}\n\n{method}\n\n"
            + "\n".join(s.markdown() for s in sections))
    out = [folder / f"{stem}.md", folder / f"{stem}.json"]
    out[0].write_text(text, encoding="utf-8")
    out[1].write_text(json.dumps({"machine": dict(machine), "quick": quick,
                                  "sections": [s.to_json() for s in sections]}, indent=1) + "\n",
                      encoding="utf-8")
    for path in (folder / f"{stem}.png", folder / f"{stem}.svg"):
        if plot(path, machine, sections):
            out.append(path)
    return out


def _fact(v: Any) -> str:
    if isinstance(v, Mapping):
        return ", ".join(f"{k} {w}" for k, w in v.items())
    return str(v)


def plot(path: Path, machine: Mapping[str, Any], sections: Sequence[Section]) -> bool:
    """Ratios of every comparison: a row for each table, a column for each number of threads."""
    shown = [(s, _peers_of(s)) for s in sections if s.names and s.key not in OWN]
    threads = sorted({int(r["threads"]) for _, rows in shown for r in rows if r["threads"]})
    if not threads:
        return False
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        print("no plot: matplotlib is not installed")
        return False
    heights = [max(_height(rows, n) for n in threads) + 1.6 for _, rows in shown]
    figure = Figure(figsize=(1.5 + 5.2 * len(threads), 0.2 * sum(heights) + 1.2), dpi=130,
                    layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(shown), len(threads), squeeze=False, sharex=True,
                           gridspec_kw={"height_ratios": heights})
    for line, (section, rows) in zip(grid, shown, strict=True):
        for axes, n in zip(line, threads, strict=True):
            _panel(axes, section, [r for r in rows if r["threads"] == n], n)
    names = dict.fromkeys(r["name"] for _, rows in shown for r in rows)
    by_colour = {_colour(n): [m for m in names if _colour(m) == _colour(n)] for n in names}
    figure.legend(handles=[Patch(color=c, label=min(group, key=len))
                           for c, group in by_colour.items()],
                  loc="outside lower center", ncols=4 * len(threads), frameon=False, fontsize=8)
    figure.suptitle(f"Time of the peer over the time of ztorch\n{machine['cpu']}, "
                    f"{machine['date']}", fontsize=10.5)
    figure.savefig(path)
    return True


def _peers_of(section: Section) -> list[dict[str, Any]]:
    return [r for r in section.results if "ratio" in r
            and not r["name"].startswith(("ztorch", "only "))]


def _height(rows: Sequence[Mapping[str, Any]], threads: int) -> float:
    mine = [r for r in rows if r["threads"] == threads]
    return len(mine) + 0.8 * len({r["case"] for r in mine})


def _panel(axes: Any, section: Section, rows: Sequence[Mapping[str, Any]], threads: int) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if not rows:
        axes.set_visible(False)
        return
    at, places = 0.0, dict[str, list[float]]()
    for r in rows:
        if r["case"] not in places and places:
            at += 0.8
        places.setdefault(r["case"], []).append(at)
        axes.barh(at, r["ratio"] - 1, left=1, height=0.85, color=_colour(r["name"]))
        axes.plot([r["ratio_p10"], r["ratio_p90"]], [at, at], color="#222222", lw=0.9)
        axes.annotate(f"x{r['ratio']:.2f}", (max(r["ratio_p90"], 1), at), fontsize=6.5,
                      va="center", xytext=(3, 0), textcoords="offset points")
        at += 1
    axes.set_yticks([sum(p) / len(p) for p in places.values()], list(places), fontsize=7.5)
    axes.set_ylim(at, -1)
    axes.set_xscale("log")
    axes.axvline(1, color="#222222", lw=1)
    title = section.title.split(":")[0].split(", float32")[0]
    axes.set_title(f"{title}, {threads} thread{'s' if threads > 1 else ''}", loc="left",
                   fontsize=9, fontweight="bold")
    axes.grid(True, axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(FixedLocator([0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"x{x:g}"))
    axes.tick_params(axis="x", labelbottom=True, labelsize=7.5)


def _colour(name: str) -> str:
    return next((c for word, c in PEERS.items() if word in name.lower()), "#888888")
