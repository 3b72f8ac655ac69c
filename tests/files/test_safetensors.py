"""Tensor files: we read the same as the safetensors package, and views cost no copy."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.grouping import together
from ztorch.dtypes import f16, f32
from ztorch.errors import WeightsError
from ztorch.files import safetensors

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float16)
GOOD = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "F16", "shape": [3], "data_offsets": [24, 30]}}


def file(header: Any, body: bytes = A.tobytes() + B.tobytes()) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "b": {**GOOD["b"], **changes}}


def test_tensors_may_be_named_in_any_order() -> None:
    tensors, _ = safetensors.unpack(file(dict(reversed(GOOD.items()))), "here")
    assert list(tensors) == ["b", "a"]
    np.testing.assert_array_equal(tensors["a"][1], A)
    np.testing.assert_array_equal(tensors["b"][1], B)


def test_arrays_are_views_of_the_bytes() -> None:
    data = safetensors.pack({"a": (f32, A), "b": (f16, B)}, {"key": "value"})
    tensors, metadata = safetensors.unpack(memoryview(data), "here")
    assert metadata == {"key": "value"}
    for name, d, array in (("a", f32, A), ("b", f16, B)):
        assert tensors[name][0] is d and np.array_equal(tensors[name][1], array)
        assert np.shares_memory(tensors[name][1], np.frombuffer(data, np.uint8))


def test_arrays_of_a_file_are_writable_copies(tmp_path: Any) -> None:
    safetensors.write(tmp_path / "w", {"a": (f32, A)})
    array = safetensors.read(tmp_path / "w")[0]["a"][1]
    array += 1
    assert np.array_equal(array, A + 1)


DAMAGED = {
    "nothing": b"",
    "half a length": b"\1\0\0",
    "a header that ends beyond": (1 << 40).to_bytes(8, "little") + b"{}",
    "a header larger than the file": file(b"{")[:-31],
    "no JSON": file(b"{nonsense"),
    "no text": file(b"\xff\xfe{}"),
    "no object": file([1]),
    "deep": file(b"[" * 100_000),
    "metadata that are a list": file({**GOOD, "__metadata__": ["x"]}),
    "metadata that are not texts": file({**GOOD, "__metadata__": {"x": 1}}),
    "an entry that is none": file({**GOOD, "b": 3}),
    "an entry without a shape": file({**GOOD, "b": {"dtype": "F16", "data_offsets": [24, 30]}}),
    "a shape that is a number": file(entry(shape=3)),
    "a shape that is a text": file(entry(shape="3")),
    "a shape below zero": file(entry(shape=[-1, -3])),
    "a shape of a fraction": file(entry(shape=[3.0])),
    "a shape of truths": file(entry(shape=[True, 3])),
    "a shape unlike the size": file(entry(shape=[4])),
    "an immense shape": file(entry(shape=[1 << 40, 1 << 40])),
    "an immense and empty shape": file(entry(shape=[0, 1 << 70], data_offsets=[24, 24]), A.tobytes()),
    "too many axes": file(entry(shape=[1] * 70 + [3])),
    "one offset": file(entry(data_offsets=[24])),
    "an offset below zero": file(entry(data_offsets=[-6, 0])),
    "an end before the start": file(entry(data_offsets=[30, 24])),
    "tensors that overlap": file(entry(data_offsets=[20, 26])),
    "a gap between tensors": file(entry(data_offsets=[26, 32]), bytes(32)),
    "bytes in front": file({"b": GOOD["b"]}),
    "bytes left over": file(GOOD, bytes(31)),
    "bytes that lack": file(GOOD, bytes(29)),
    "no tensor but bytes": file({}, b"x"),
}


@together()
@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files(case: str) -> None:
    with pytest.raises(WeightsError, match="here is not a complete safetensors file"):
        safetensors.unpack(DAMAGED[case], "here")


def test_a_tensor_that_ends_beyond_the_file_is_named() -> None:
    for lacking in (1, 6, 8, 30):
        with pytest.raises(WeightsError, match=r"tensor '[ab]' ends beyond the file"):
            safetensors.unpack(file(GOOD, bytes(30 - lacking)), "here")


def test_unsupported_dtypes_are_named() -> None:
    with pytest.raises(WeightsError, match=r"tensor .b. has dtype F8_E5M2.*convert it to F32"):
        safetensors.unpack(file(entry(dtype="F8_E5M2", data_offsets=[24, 27])), "here")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["F32", "F16", "U8", "BOOL"]),
                          st.lists(st.integers(-1, 4), max_size=3),
                          st.integers(-3, 3), st.integers(-3, 3)), max_size=3),
       st.integers(-2, 2), st.booleans())
def test_accepts_the_same_files_as_the_reference_package(wanted: list, left_over: int, shuffled: bool) -> None:
    """Tensors end to end, most of them with an offset or a size that is wrong."""
    package = pytest.importorskip("safetensors")
    at, header = 0, {}
    for k, (tag, shape, move, grow) in enumerate(wanted):
        move, grow = (n if abs(n) == 3 else 0 for n in (move, grow))
        size = math.prod(shape) * {"F32": 4, "F16": 2}.get(tag, 1)
        header[f"t{k}"] = {"dtype": tag, "shape": shape,
                           "data_offsets": [at + move, at + move + size + grow]}
        at += size
    if shuffled:
        header = dict(reversed(header.items()))
    data = file(header, bytes(max(0, at + (left_over if abs(left_over) == 2 else 0))))
    try:
        theirs = {n: (e["dtype"], e["shape"], bytes(e["data"]))
                  for n, e in package.deserialize(data)}
    except (package.SafetensorError, ValueError):
        with pytest.raises(WeightsError):
            safetensors.unpack(data, "here")
        return
    ours, _ = safetensors.unpack(data, "here")
    assert {n: (list(a.shape), a.tobytes()) for n, (_, a) in ours.items()} == {
        n: (list(shape), raw) for n, (_, shape, raw) in theirs.items()}


def test_tensors_start_at_multiples_of_eight_bytes() -> None:
    for n in range(1, 9):
        data = safetensors.pack({"x" * n: (f32, np.zeros(1, np.float32))})
        assert int.from_bytes(data[:8], "little") % 8 == 0, n
