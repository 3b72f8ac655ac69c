"""NumPy's files as they should not be: each is read, or refused by its name."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from ztorch.data.numpy_files import read_array, read_arrays
from ztorch.errors import DataError

X = np.random.default_rng(0).normal(size=(20, 4))


def test_both_kinds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez_compressed(tmp_path / "x.npz", x=X, y=X[:, 0])
    np.testing.assert_array_equal(read_array(tmp_path / "x.npy"), X)
    actual = read_arrays(tmp_path / "x.npz")
    assert list(actual) == ["x", "y"]
    np.testing.assert_array_equal(actual["y"], X[:, 0])
    (tmp_path / "z.npy").write_bytes((tmp_path / "x.npz").read_bytes())
    with pytest.raises(DataError, match=r"z\.npy is an NPZ file of x, y"):
        read_array(tmp_path / "z.npy")


def claiming(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(100)


@pytest.mark.cheap
@pytest.mark.parametrize(("data", "says"), (
    (claiming(f"({1 << 50},)"), "more than fits in memory"),
    (claiming("(-5,)"), "cannot be read"),
    (claiming("(26,)"), "cannot be read"),
    (b"", "cannot be read"),
    (b"PK junk", "cannot be read"),
))
def test_wrong_contents(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(data)
    with pytest.raises(DataError, match=says) as caught:
        read_array(file)
    assert str(file) in str(caught.value) and "numpy.save" in str(caught.value)


def test_python_objects_are_not_unpickled(tmp_path: Path) -> None:
    opened: list[int] = []
    np.save(tmp_path / "x.npy", np.array([opened], object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        read_array(tmp_path / "x.npy")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none\.npy: No such file .*; check the path"):
        read_array(tmp_path / "none.npy")


@pytest.mark.parametrize("kind", ("npy", "npz"))
def test_damaged_anywhere(tmp_path: Path, kind: str) -> None:
    file, rng = tmp_path / f"x.{kind}", random.Random(0)
    if kind == "npy":
        np.save(file, X)
    else:
        np.savez_compressed(file, x=X, y=X[:, 0])
    whole, refused = file.read_bytes(), 0
    for _ in range(400):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        data[rng.randrange(min(len(data), 200))] = rng.randrange(256)
        file.write_bytes(data[:rng.randrange(len(data))] if rng.random() < 0.1 else data)
        try:
            read_arrays(file)
        except DataError as error:
            assert str(file) in str(error)
            refused += 1
    assert refused > 100
