"""The table of backends: their preference for "auto", and the languages of their kernels."""

from __future__ import annotations

from typing import NamedTuple


class BackendRow(NamedTuple):
    """A backend; the CPU counts as one."""

    name: str
    # "auto" selects the available backend with the highest preference, if above that of the CPU.
    # Such a driver must be cheap to query, and must not emulate a GPU on the CPU.
    preference: int
    languages: tuple[str, ...]  # the languages of its kernels, the default first
    computes: bool = True  # False for the dummy device of tests
    # Whether a driver that any Linux machine can install runs its kernels on the CPU. Tests use it.
    runs_on_cpu: bool = False


BACKENDS: tuple[BackendRow, ...] = (
    BackendRow("cuda", 40, ("ptx",)),
    BackendRow("rocm", 30, ("hip", "code object")),
    BackendRow("metal", 20, ("msl",)),
    BackendRow("cpu", 10, ("c",)),
    BackendRow("vulkan", 0, ("spirv",), runs_on_cpu=True),
    BackendRow("opencl", 0, ("opencl", "spirv"), runs_on_cpu=True),
    BackendRow("webgpu", 0, ("wgsl",), runs_on_cpu=True),
    BackendRow("dummy", 0, ("text",), computes=False),
)


def before_cpu() -> tuple[str, ...]:
    """The backends that "auto" prefers to the CPU, the most preferred first.

    >>> before_cpu()
    ('cuda', 'rocm', 'metal')
    """
    cpu = next(row.preference for row in BACKENDS if row.name == "cpu")
    ordered = sorted(BACKENDS, key=lambda row: -row.preference)
    return tuple(row.name for row in ordered if row.preference > cpu)


def computes(backend: str) -> bool:
    """Whether a backend computes, unlike the dummy device of tests.

    >>> computes("opencl"), computes("dummy")
    (True, False)
    """
    return all(row.computes for row in BACKENDS if row.name == backend)


def running_on_cpu() -> tuple[str, ...]:
    """The GPU backends whose kernels a CPU can run, which tests therefore do.

    >>> running_on_cpu()
    ('opencl', 'vulkan', 'webgpu')
    """
    return tuple(sorted(row.name for row in BACKENDS if row.runs_on_cpu))


def languages_of(backend: str) -> tuple[str, ...]:
    """The kernel languages of a backend of this package. A third party's backend has its own list.

    >>> languages_of("opencl")
    ('opencl', 'spirv')
    """
    return next((row.languages for row in BACKENDS if row.name == backend), ())
