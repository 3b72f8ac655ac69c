"""Every op of the registry and its gradient on every device that is here, beside float64."""

from __future__ import annotations

import pytest

from tests.devices.available import COMPUTING, device
from tests.devices.programs import Module
from tests.lower.test_every_op import jobs
from tests.parity import Job, agree
from ztorch.errors import Unsupported

# The inner loop tries what between them use every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "random_uniform", "take", "cast")
OPS = [pytest.param(op, marks=() if op in QUICK else pytest.mark.slow) for op in jobs()]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("backend", COMPUTING)
def test_op(backend: str, op: str) -> None:
    device(backend)
    able = [job for job in jobs()[op] if _able(job, backend)]
    module = Module(able, backend) if able else None
    for k, job in enumerate(able):
        assert module is not None
        agree(job, module.run(k), terms=20)


def _able(job: Job, backend: str) -> bool:
    """A device may lack a dtype beyond the four that all have, and says so while it compiles."""
    if all(v.dtype.name in ("f32", "i32", "u32", "bool") for v in job.graph.nodes()):
        return True
    try:
        Module([job], backend)
    except Unsupported as error:
        assert backend in str(error)
        return False
    return True
