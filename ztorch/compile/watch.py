"""Shows the output of each compiler stage, as requested by ZTORCH_DEBUG and ZTORCH_DUMP."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

from ztorch.errors import ConfigError
from ztorch.host.settings import current

_programs = itertools.count()  # numbers the programs of this process whose stages are written


class Watch:
    """Called at the end of each stage of a program. Prints its result and time, or writes the
    result to a file, if the settings request it."""

    def __init__(self) -> None:
        self.settings = current()
        self.program = next(_programs) if self.settings.dump else 0
        self.stage_start = time.perf_counter()
        self.stages_done = 0

    def done(self, stage: str, result: Any) -> None:
        """The stage has ended with this result."""
        seconds = time.perf_counter() - self.stage_start
        if "time" in self.settings.debug:
            print(f"ztorch: {stage:8} {seconds * 1e3:8.1f} ms", file=sys.stderr)
        if set(self.settings.debug) - {"time"} or self.settings.dump:
            for name, text in _texts(stage, result):
                if name in self.settings.debug:
                    print(text, file=sys.stderr)
                if self.settings.dump:
                    data = text if isinstance(text, bytes) else text.encode()
                    _dump(Path(self.settings.dump),
                          f"{self.program:02}_{self.stages_done:02}_{stage}.{name}", data)
            self.stages_done += 1
        self.stage_start = time.perf_counter()


def _dump(folder: Path, file: str, data: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    except OSError as error:
        raise ConfigError(f"ZTORCH_DUMP={str(folder)!r} is not writable: {error.strerror}; "
                          "use another folder") from None


def _texts(stage: str, result: Any) -> list[tuple[str, Any]]:
    """The result of a stage as texts, each with its name in ZTORCH_DEBUG."""
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel

    if stage == "graph":
        graphs = "\n\n".join(f"# {name}\n{show_graph(graph)}" for name, graph in result.items())
        return [("graph", graphs)]
    if stage == "plan":
        kernels = [show_kernel(step.kernel) for plan in result.values() for step in plan.steps]
        return [("plan", "\n\n".join(show_plan(plan) for plan in result.values())),
                ("ir", "\n\n".join(kernels))]
    if stage == "text":
        return [("text", result)]
    if stage == "object":
        return []  # its sections are those of the library
    return [("bin", result)]


def show_plan(plan: Any) -> str:
    """The kernels of a function in order, with the buffers they read (<) and write (>), and the
    schedule of each of its parts by its key. A bar marks a kernel that waits until all workers have
    finished the kernels before it."""
    lines = [f"# {plan.name}: {len(plan.steps)} kernels, arena {plan.arena} bytes"]
    for number, step in enumerate(plan.steps):
        buffers = ", ".join(f"{'>' if writes else '<'}{place.space}[{place.offset}]"
                            for place, writes in zip(step.locations, step.writes, strict=True))
        barrier = ": " if step.skipped else "| " if step.barrier else "  "
        lines.append(f"{number:3} {barrier}{step.kernel.name}  {buffers}")
        lines += [f"      {part.key}: {part.schedule!r}{'  (tuned)' if part.tuned else ''}"
                  for part in step.parts if part.schedule is not None]
    return "\n".join(lines)
