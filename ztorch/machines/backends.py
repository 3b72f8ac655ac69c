"""One row for each backend: which of them "auto" takes first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BackendRow:
    """A backend, the CPU among them."""

    name: str
    # "auto" takes the highest that has a GPU here, if that is more than the CPU's. To ask a driver
    # must cost nothing then, and it must not be one that imitates a GPU on the CPU.
    preference: int


BACKENDS: tuple[BackendRow, ...] = (
    BackendRow("cuda", 40),
    BackendRow("rocm", 30),
    BackendRow("metal", 20),
    BackendRow("cpu", 10),
    BackendRow("vulkan", 0),
    BackendRow("opencl", 0),
    BackendRow("webgpu", 0),
    BackendRow("dummy", 0),
)


def before_cpu() -> tuple[str, ...]:
    """The backends that "auto" prefers to the CPU, the most preferred first.

    >>> before_cpu()
    ('cuda', 'rocm', 'metal')
    """
    cpu = next(row.preference for row in BACKENDS if row.name == "cpu")
    ordered = sorted(BACKENDS, key=lambda row: -row.preference)
    return tuple(row.name for row in ordered if row.preference > cpu)
