"""The result of `tune`, which prints as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ztorch.compile.tuned_files import TunedKernel
from ztorch.terminal.text_table import aligned_table


@dataclass(frozen=True)
class TuningReport:
    """The result of `tune`.

    Args:
        kernels: The record of each kernel, the one with the most work first.
        measured: The number of kernels that were measured this time.
        left: The number of kernels that were not measured for lack of time. Default: `0`.
        interrupted: Whether Ctrl-C ended the tuning. Default: `False`.
        predicted: Whether times are predicted, and nothing was run. Default: `False`.
        plans: The record of each function whose plans were measured: its layouts, and what is
            fused. Default: `()`.
        products: The records of products that other libraries computed beside our fastest
            kernels. Default: `()`.
    """

    kernels: tuple[TunedKernel, ...]
    measured: int
    left: int = 0
    interrupted: bool = False
    predicted: bool = False
    plans: tuple[TunedKernel, ...] = ()
    products: tuple[TunedKernel, ...] = ()

    def __str__(self) -> str:
        known = len(self.kernels) - self.measured
        better = sum(k.schedule != k.rule for k in self.kernels)
        rows = (*self.kernels, *self.products, *self.plans)
        lines = [kernel_table(rows), ""] if rows else []
        verb = "predicted" if self.predicted else "measured"
        lines.append(f"{self.measured} kernels {verb}, {known} known before; {better} have a "
                     "better schedule than the rules give them")
        if self.products:
            taken = sum(k.schedule != k.rule for k in self.products)
            lines.append(f"{taken} of {len(self.products)} products are faster by another library: "
                         "programs compiled here call it, and artifacts never do")
        if self.interrupted:
            lines.append(f"Interrupted: {self.left} kernels are left; measurements are kept")
        elif self.left:
            lines.append(f"The time was up: {self.left} kernels are left; run it again for them")
        return "\n".join(lines)



def kernel_table(kernels: Iterable[TunedKernel]) -> str:
    """A table with the times of the rules' schedule and of the best one, and the best schedule."""
    rows = [("kernel", "rule us", "best us", "ratio", "schedule")]
    rows += [(k.title, f"{k.rule_seconds * 1e6:.2f}", f"{k.seconds * 1e6:.2f}",
              f"{k.rule_seconds / k.seconds:.2f}" if k.seconds else "-",
              k.schedule if k.schedule != k.rule else
              "ours" if k.library else "that of the rules") for k in kernels]
    return aligned_table(rows)


def stored_table(kernels: Sequence[TunedKernel]) -> str:
    """A table of kernels for each machine, number of threads and version."""
    groups: dict[str, list[TunedKernel]] = {}
    for k in kernels:
        threads = f", {k.threads} thread{'s' * (k.threads > 1)}" if k.threads else ""
        groups.setdefault(f"{k.machine}{threads}, ztorch {k.version}", []).append(k)
    if not groups:
        return "Nothing was measured yet; run `ztorch tune MODEL`"
    return "\n\n".join(f"{title}\n{kernel_table(group)}" for title, group in groups.items())
