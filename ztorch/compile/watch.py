"""Shows and keeps what each stage of the compiler made, as ZTORCH_DEBUG and ZTORCH_DUMP ask."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ztorch.errors import ConfigError
from ztorch.host.settings import current


class Watch:
    """Told of each finished stage; silent unless asked to speak."""

    def __init__(self) -> None:
        self.settings = current()
        self.start = time.perf_counter()
        self.count = 0

    def done(self, stage: str, made: Any) -> None:
        now = time.perf_counter()
        if "time" in self.settings.debug:
            print(f"ztorch: {stage:8} {(now - self.start) * 1e3:8.1f} ms", file=sys.stderr)
        if set(self.settings.debug) - {"time"} or self.settings.dump:
            for name, text in _texts(stage, made):
                if name in self.settings.debug:
                    print(text, file=sys.stderr)
                if self.settings.dump:
                    data = text if isinstance(text, bytes) else text.encode()
                    _keep(Path(self.settings.dump), f"{self.count:02}_{stage}.{name}", data)
            self.count += 1
        self.start = time.perf_counter()


def _keep(folder: Path, file: str, data: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    except OSError as error:
        raise ConfigError(f"ZTORCH_DUMP={str(folder)!r} cannot be written to: {error.strerror}; "
                          "name a folder that can") from None


def _texts(stage: str, made: Any) -> list[tuple[str, Any]]:
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel

    if stage == "graph":
        return [("graph", "\n\n".join(f"# {n}\n{show_graph(g)}" for n, g in made.items()))]
    if stage == "plan":
        kernels = [show_kernel(s.kernel) for p in made.values() for s in p.steps]
        return [("plan", "\n\n".join(show_plan(p) for p in made.values())),
                ("ir", "\n\n".join(kernels))]
    if stage == "text":
        return [("text", made)]
    return [("bin", made)]


def show_plan(plan: Any) -> str:
    """Kernels in order, with what they read and write, and the schedule of each by its key."""
    lines = [f"# {plan.name}: {len(plan.steps)} kernels, arena {plan.arena} bytes"]
    for k, step in enumerate(plan.steps):
        used = ", ".join(f"{'>' if w else '<'}{p.space}[{p.offset}]"
                         for p, w in zip(step.locations, step.writes, strict=True))
        meet = "| " if step.barrier else "  "
        lines.append(f"{k:3} {meet}{step.kernel.name}  {used}")
        if step.schedule is not None:
            lines.append(f"      {step.key}: {step.schedule!r}")
    return "\n".join(lines)
