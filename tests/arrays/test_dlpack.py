"""Tensors and arrays of other libraries share memory by DLPack."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch.arrays import memory
from ztorch.dtypes import ALL, bf16
from ztorch.errors import DataError, Unsupported

pytestmark = pytest.mark.usefixtures("by_numpy")

NUMPYS = [d for d in ALL if d is not bf16]


# -- DLPack and PyTorch ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", NUMPYS, ids=str)
def test_dlpack_in_both_directions(d: Any) -> None:
    torch = references.torch()
    a = np.array([[0, 1], [1, 100]]).astype(d.numpy)
    x = zt.tensor(a) if d.long == "bool" else zt.tensor(a) + zt.tensor(0, d)
    np.testing.assert_array_equal(np.from_dlpack(x), a, strict=True)
    theirs, shared = torch.from_dlpack(x), torch.from_dlpack(x, copy=False)
    np.testing.assert_array_equal(theirs.numpy(), a, strict=True)
    assert theirs.data_ptr() != x.numpy().ctypes.data == shared.data_ptr()
    for back in (zt.from_dlpack(theirs), zt.tensor(theirs), zt.asarray(theirs.T).T, zt.from_dlpack(np.from_dlpack(x))):
        np.testing.assert_array_equal(back.numpy(), a, strict=True)
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("take", ["from_dlpack", "asarray", "as_tensor", "tensor"])
def test_what_pytorch_writes_changes_no_tensor(take: str) -> None:
    x = zt.tensor(np.arange(1000.0))
    recorded, same = x * 2.0, zt.asarray(x)
    plus_x = zt.compiled(lambda y: y + x)
    for source in (x, recorded):  # one that is computed, and one that is not
        theirs = getattr(references.torch(), take)(source)
        theirs += 5.0
        assert theirs[1] == source[1].item() + 5.0
    for y, factor in ((x, 1.0), (recorded, 2.0), (same, 1.0), (plus_x(same), 2.0)):
        np.testing.assert_array_equal(y.numpy(), np.arange(1000.0) * factor)


def test_consumers_of_unversioned_dlpack_get_a_copy() -> None:
    x = zt.tensor(np.arange(1000.0))

    class Old:  # as JAX asks, and others from before version 1
        def __dlpack__(self, **options: Any) -> Any:
            return x.__dlpack__(**{k: v for k, v in options.items() if k == "stream"})

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    theirs = references.torch().from_dlpack(Old())
    theirs[0] = 5.0
    assert x[0].item() == 0.0 and theirs[999] == 999.0
    with pytest.raises(BufferError, match="max_version"):
        x.__dlpack__(copy=False)


JAX = """
import gc, jax, numpy as np, ztorch as zt
for x in (zt.tensor(np.arange(64, dtype=np.float32)), zt.tensor([[True], [False]]), zt.tensor(np.float32(2.5))):
    theirs = jax.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(theirs), x.numpy(), strict=True)
    np.testing.assert_array_equal(zt.from_dlpack(theirs).numpy(), x.numpy(), strict=True)
    np.testing.assert_array_equal(zt.tensor(theirs * 1).numpy(), x.numpy())
theirs = jax.numpy.arange(1000.0)
ours = zt.from_dlpack(theirs, copy=False)
assert ours.numpy().ctypes.data == theirs.unsafe_buffer_pointer()
del theirs
gc.collect()
assert ours.sum().item() == 499500.0
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_arrays_of_jax_in_both_directions() -> None:
    """In a separate process: JAX's threads are in the way of tests that fork."""
    ran = subprocess.run([sys.executable, "-c", JAX], env={**os.environ, "ZTORCH_DEVICE": "cpu"}, text=True,
                         capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_memory_lent_by_dlpack_outlives_the_tensor() -> None:
    torch = references.torch()
    x = zt.tensor(np.arange(1000.0))
    theirs = torch.from_dlpack(x, copy=False)
    ours = zt.from_dlpack(torch.arange(1000.0))
    del x
    gc.collect()
    others = [zt.tensor(np.full(1000, -1.0)) for _ in range(5)], [torch.full((1000,), -1.0) for _ in range(5)]
    assert theirs[999] == 999.0 and ours[999].item() == 999.0 and len(others) == 2


def test_pytorchs_bfloat16_and_gradients() -> None:
    torch = references.torch()
    pytest.importorskip("ml_dtypes")
    theirs = torch.tensor([1.0, 2.5, -3.0], dtype=torch.bfloat16)
    x = zt.tensor(theirs)
    assert x.dtype is bf16 and x.tolist() == [1.0, 2.5, -3.0]
    with pytest.raises(DataError, match="detach"):
        zt.tensor(torch.ones(2, requires_grad=True))
    back = torch.from_dlpack(x * 2)
    assert back.dtype is torch.bfloat16 and back.tolist() == [2.0, 5.0, -6.0]
    back[0] = 9.0  # its own copy
    assert x.tolist() == [1.0, 2.5, -3.0]
    assert torch.from_dlpack(zt.zeros((0, 3), dtype="bfloat16")).shape == (0, 3)


def test_bfloat16() -> None:
    ml = pytest.importorskip("ml_dtypes")
    a = np.array([1.0, 1.00390625, 1.01171875, np.inf, 3e38, 1e-40], np.float32)
    x = zt.tensor(a, dtype="bfloat16")
    np.testing.assert_array_equal(x.numpy(), a.astype(ml.bfloat16))
    assert zt.tensor(x.numpy()).dtype is bf16 and repr(zt.tensor([1, 2.5], "bfloat16")).startswith("tensor([1. , 2.5]")


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    x = zt.tensor([1.0, 2.5], dtype="bfloat16") * 2
    assert x.tolist() == [2.0, 5.0] and x[1].item() == 5.0 and "5." in repr(x) and bool(x[0])
    assert pickle.loads(pickle.dumps(x)).tolist() == [2.0, 5.0] and x.to("cpu", copy=True).dtype is bf16
    np.testing.assert_array_equal(x.astype("float32").numpy(), [2.0, 5.0])
    with pytest.raises(Unsupported, match="pip install ml_dtypes"):
        x.numpy()


class Device:
    """An array of CuPy, as far as it is asked: it is on a GPU."""

    dtype, shape = np.dtype("float32"), (2,)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **how: Any) -> Any:
        raise BufferError("it is on CUDA")

    def __array__(self, *how: Any, **more: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use .get()")


def test_arrays_of_gpus_are_named() -> None:
    for take in (zt.tensor, zt.asarray, zt.from_dlpack, lambda a: zt.ones(2) + a):
        with pytest.raises(DataError, match=r"\.get\(\)"):
            take(Device())


def test_blocks_are_reused() -> None:
    pool = memory.memory("cpu")
    x = zt.tensor(np.zeros(12345, np.float32))
    place = x.node.block.place
    assert 12345 * 4 <= x.node.block.nbytes <= 12345 * 4 * 9 / 8  # sizes come in eight steps a doubling
    del x
    y = zt.tensor(np.ones(12345, np.float32))
    assert y.node.block.place == place
    pool.release()
    assert pool._free_bytes == 0 and y[0].item() == 1.0


def test_numpy_writes_into_no_tensor() -> None:
    x = zt.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="out="):
        np.add(np.ones(2), 1, out=x)
    array = np.ones(2, np.float32)
    array += x
    assert array.tolist() == [2.0, 3.0] and x.tolist() == [1.0, 2.0]
