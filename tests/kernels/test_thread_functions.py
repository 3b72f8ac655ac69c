"""Each function of threads by itself, in each dtype, on each machine: results agree with plain Python, and the unsupported
cases are those of docs/kernel_functions.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.pretended_rocm import install as pretended_rocm  # noqa: F401
from tests.cases import available
from tests.cases.available import COMPUTING
from tests.cases.covering import share, today
from tests.cases.device_programs import able, all_agree
from tests.cases.pretended_cuda import close, install
from tests.cases.thread_functions import KERNELS, job, plain
from tests.machines.metal.fake import Mac, playing
from tests.parity import GROUPS, HERE, SUBGROUPS, C, Job, Module, agree, interpreted
from tools.capabilities import grouped
from tools.opcode_support import NO, atomic_state, has
from ztorch.codegen.targets import TARGETS
from ztorch.compile.kernels import Kernels
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, boolean, i8
from ztorch.errors import KernelError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.lower.params import Params
from ztorch.lower.plan import lower


def _takes(name: str, d: DType) -> bool:
    return d.bits >= 32 if name.startswith("atomic") else (
        d is not boolean or not name.startswith("subgroup"))


PAIRS = [(name, d) for name in KERNELS for d in ALL if _takes(name, d)]
INTERPRETED = {"groups": GROUPS, "subgroups": SUBGROUPS}
MACHINES = [*INTERPRETED, *HERE, *C, *COMPUTING]


@functools.cache
def jobs(turn: int = 0, of: int = 1) -> list[Job]:
    return [job(*pair) for pair in share(PAIRS, turn, of)]


def test_plain_python_matches_the_graph() -> None:
    for one in jobs(0, 8):
        for a, b in zip(evaluate(one.graph.roots, one.feeds), plain(one), strict=True):
            np.testing.assert_array_equal(a, b, one.label)


@pytest.mark.parametrize("machine", [
    pytest.param(m, marks=() if m in (*INTERPRETED, HERE[-1]) else pytest.mark.slow) for m in MACHINES])
def test_on_machines(machine: str) -> None:
    some = jobs(MACHINES.index(machine), len(MACHINES))
    if machine in COMPUTING:
        all_agree(machine, some)
        return
    module = None if machine in INTERPRETED else Module(some, machine)
    for k, one in enumerate(some):
        agree(one, module.run(k, threads=2) if module else interpreted(one, INTERPRETED[machine], workers=2))


@pytest.mark.slow
def test_as_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    all_agree("cuda", jobs(0, 4))
    close(fake)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
def test_as_code_for_amd(chip: str, pretended_rocm: Callable[..., Any]) -> None:  # noqa: F811
    pretended_rocm(chip)
    all_agree("rocm", jobs(1, 4))


@pytest.mark.slow
def test_as_metal() -> None:
    some = jobs(2, 4)
    available.device.cache_clear()
    with playing(Mac()):
        all_agree("metal", [one for one in some if able(one, "metal")])
    available.device.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda:c", "rocm:gfx942"])
def test_compilers_accept_them(name: str) -> None:
    """NVRTC and LLVM; tests of CUDA's PTX assemble it where there is an assembler."""
    compile_functions({one.label: one.graph for one in jobs(3, 8)}, TARGETS[name], "words")


@pytest.mark.slow
def test_the_page_lists_refusals() -> None:
    """A third of the targets in each run."""
    some = [(*pair, job(*pair)) for pair in PAIRS if pair[0] in ("shuffle_xor", "atomic_add", "atomic_cas")]
    for target in share([group[0] for group in grouped()], today(), 3):
        kernels = Kernels(target)
        for name, d, one in some:
            steps = lower("word", one.graph, target.limits, Params(target.limits)).steps
            if has(target, d) and not (name.startswith("atomic") and atomic_state(name, d, target) == NO):
                for step in steps:
                    kernels.number(step.kernel)
            else:
                with pytest.raises(Unsupported, match=f"{target.name} (lacks|has no)"):
                    for step in steps:
                        kernels.number(step.kernel)


def test_dtypes_that_no_target_updates() -> None:
    with pytest.raises(KernelError, match=r"zt.atomic_add takes arrays of 32 or 64 bits, not int8"):
        job("atomic_add", i8)
