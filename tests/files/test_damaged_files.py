"""Damaged files of every kind that is read: each is an error of ours that names the file, or still
holds something; never an error of Python, never a crash."""

from __future__ import annotations

import copy
import gzip
import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import together, whole
from tools.damage import content_changed
from ztorch import layers as L
from ztorch.data.mnist import read_idx
from ztorch.data.numpy_files import read_arrays
from ztorch.errors import ArtifactError, DataError, WeightsError, ZtorchError
from ztorch.files.container import members
from ztorch.files.npz import unpack
from ztorch.files.parsing import parsing
from ztorch.files.zips import StoredZip
from ztorch.sources.find import find

DAMAGES = 60  # of each file


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3, name="fc"), L.Dense(2, name="out")], seed=1)


def npz(**arrays: Any) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def torch_file() -> bytes:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    data = io.BytesIO()
    torch.save(net.state_dict(), data)
    return data.getvalue()


def saved(suffix: str) -> Callable[[Path], bytes]:
    def write(path: Path) -> bytes:
        model().save_weights(path.with_suffix(suffix))
        return path.with_suffix(suffix).read_bytes()
    return write


def keras_file(path: Path) -> bytes:
    keras = pytest.importorskip("keras")
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    net.save(path.with_suffix(".keras"))
    return path.with_suffix(".keras").read_bytes()


def onnx_file(path: Path) -> bytes:
    pytest.importorskip("onnx")
    model().export(path.with_suffix(".onnx"))
    return path.with_suffix(".onnx").read_bytes()


def idx(*shape: int) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(
        int(np.prod(shape)))


ARRAYS = {"x": np.arange(12.0).reshape(3, 4), "y": np.array(["a", "b", "c"])}
# The writer of a whole file, the suffix of its name, and its reader.
READERS: dict[str, tuple[Callable[[Path], bytes], str, Callable[[Path], Any]]] = {
    "npz of data": (lambda _: npz(**ARRAYS), ".npz", read_arrays),
    "table": (lambda _: npz(**ARRAYS), ".npz", lambda p: zt.data.read_table(p)),
    "idx": (lambda _: idx(2, 3, 4), ".idx", read_idx),
    "gzipped idx": (lambda _: gzip.compress(idx(2, 3, 4), mtime=0), ".idx.gz", read_idx),
    "npz of weights": (lambda _: npz(**{
        name: w.value for name, w in model().named_weights().items()}), ".npz",
        lambda p: model().load_weights(p)),
    "safetensors": (saved(".safetensors"), ".safetensors", lambda p: model().load_weights(p)),
    "weights of Keras": (saved(".weights.h5"), ".weights.h5", lambda p: model().load_weights(p)),
    "pt": (lambda _: torch_file(), ".pt", lambda p: model().load_weights(p)),
    "keras": (keras_file, ".keras", lambda p: zt.load_keras(p)),
    "onnx": (onnx_file, ".onnx", lambda p: find(str(p))),
    "csv": (lambda _: b"a,b,label\n1,2,x\n3,4.5,y\n-1e3,7,x\n", ".csv",
            lambda p: zt.data.read_table(p)),
    "artifact": (lambda _: whole(), ".zt", lambda p: find(str(p)))}


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_is_an_error_of_ours(kind: str, tmp_path: Path) -> None:
    write, suffix, read = READERS[kind]
    path = tmp_path / f"damaged{suffix}"
    data = write(tmp_path / "whole")
    path.write_bytes(data)
    read(path)
    refused = 0
    rng = random.Random(kind)
    for _ in range(DAMAGES):
        path.write_bytes(content_changed(path.name, data, rng))
        try:
            read(path)
        except ZtorchError as error:
            refused += 1
            assert path.name in str(error) or "model" in str(error)
    assert refused > DAMAGES // 6


def test_arrays_have_the_bytes_of_their_shape() -> None:
    whole = npz(x=np.arange(3.0))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        array = archive.read("x.npy")
    for data in (array + b"\0", array[:-1]):
        damaged = io.BytesIO()
        with zipfile.ZipFile(damaged, "w") as archive:
            archive.writestr("x.npy", data)
        with pytest.raises(WeightsError, match=r"array 'x' of shape \(3,\) has"):
            unpack(damaged.getvalue(), "lies.npz")
    assert unpack(whole, "lies.npz")["x"][1].tolist() == [0.0, 1.0, 2.0]


def test_compressed_and_encrypted_members_are_refused() -> None:
    """Header and directory agree, so nothing else tells."""
    for at, value, message in ((6, 1, "method 0, flags 1"), (8, 8, "method 8, flags 0")):
        data = bytearray(whole())
        data[at] = data[data.index(b"PK\1\2") + at + 2] = value
        with pytest.raises(ArtifactError, match=f"is compressed or encrypted .{message}"):
            members(bytes(data), "lies.zt")


def npz_packed(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=x)
    return file.getvalue()


def shared_by_many(data: bytes, count: int) -> bytes:
    """A zip of one member whose directory lists it many times."""
    begin, end = data.rindex(b"PK\1\2"), data.rindex(b"PK\5\6")
    entry = data[begin:end]
    return data[:begin] + entry * count + struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(entry) * count, begin, 0)


def test_sizes_that_a_file_cannot_hold(tmp_path: Path) -> None:
    """An array that claims more than deflating can win, and members that share their bytes."""
    data = bytearray(npz(x=np.zeros(2)))
    at = data.index(b"PK\1\2") + 24  # the size of the member in the directory
    data[at:at + 4] = (1101 * len(data)).to_bytes(4, "little")
    with pytest.raises(WeightsError, match="array 'x' claims"):
        unpack(bytes(data), "lies.npz")
    bomb = shared_by_many(npz_packed(np.zeros(100_000)), 400)
    (tmp_path / "bomb.npz").write_bytes(bomb)
    with pytest.raises(WeightsError, match="array 'x' claims 800128 bytes, more than the file can hold"):
        unpack(bomb, "bomb.npz")
    with pytest.raises(DataError, match="array 'x' claims 800128 bytes, more than the file can hold"):
        read_arrays(tmp_path / "bomb.npz")
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("a", b"\0" * 1000)
        archive.filelist.append(copy.copy(archive.filelist[0]))
        archive.filelist[1].filename = "b"
    with pytest.raises(WeightsError, match="its 2 members claim more bytes than it has"):
        StoredZip(kept.getvalue(), "lies.keras")


def test_members_are_named(tmp_path: Path) -> None:
    path = tmp_path / "lies.npz"
    for arrays, message in (
        ({"x": np.zeros(3, "M8[D]")}, r"lies.npz: array 'x' holds values of datetime64\[D\]"),
        ({"x": np.zeros(3, [("a", "f4")])}, r"lies.npz: array 'x' holds values of \[\('a'"),
        ({"x": np.zeros(2), "y": np.array([b"\xff\xfe", b"b"])},
         r"lies.npz: array 'y' cannot be read .*can't decode"),
    ):
        path.write_bytes(npz(**arrays))
        with pytest.raises(DataError, match=message):
            read_arrays(path)
    broken = np.array(["ab"]).view("u4").copy()
    broken[0] = 0x7FFFFFFF
    path.write_bytes(npz(y=broken.view("U2")))
    with pytest.raises(DataError, match=r"lies.npz: array 'y' cannot be read .*Unicode"):
        read_arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(DataError, match=r"lies.npz: array 'notes.txt' is not an array but 5 bytes"):
        read_arrays(path)


@pytest.mark.cheap
@pytest.mark.parametrize("axes", [0, 9, 255])
def test_dimensions_of_idx(axes: int, tmp_path: Path) -> None:
    path = tmp_path / "images.idx"
    path.write_bytes(bytes([0, 0, 8, axes]) + struct.pack(">I", 1) * axes + b"\7")
    with pytest.raises(DataError, match=rf"images\.idx claims {axes} dimensions; IDX files have 1 to 8"):
        read_idx(path)


@pytest.mark.cheap
@pytest.mark.parametrize("text, message", [
    (b'{"version": NaN}', r"is not JSON \(NaN is not a JSON number"),
    (b"[" * 5000 + b"]" * 5000, "manifest.json"),
    (b'{"format": "ztorch artifact", "version": 6, "ztorch": "1", "files": {}, "targets": [], '
     b'"program": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}", "manifest.json: program"),
])
def test_json_with_false_claims(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lie.zt"
    path.write_bytes(together(text, {}))
    with pytest.raises(ArtifactError, match=message):
        zt.load(path)


def test_a_deep_declaration(tmp_path: Path) -> None:
    from tests.cases.artifacts import changed

    deep: Any = {}
    for _ in range(200):
        deep = {"class_name": "Sequential", "config": {"layers": [deep]}}
    path = tmp_path / "deep.zt"
    path.write_bytes(changed(lambda m: m["program"].update(declaration={"model": deep}), whole()))
    with pytest.raises(ArtifactError, match=r"deep\.zt"):
        zt.load_model(path)


def test_every_exception_of_a_parser_becomes_ours() -> None:
    for raised in (KeyError("a"), RecursionError(), MemoryError(), struct.error("b"),
                   AttributeError("c\nd"), OverflowError("e" * 1000)):
        with pytest.raises(WeightsError, match=r"^file: part is broken \(.{1,310}\); fix it$"), parsing(
                "file", WeightsError, "is broken", "fix it", "part"):
            raise raised
    with pytest.raises(DataError, match=r"^mine$"), parsing("file", WeightsError, "", ""):
        raise DataError("mine")
    with pytest.raises(KeyboardInterrupt), parsing("file", WeightsError, "", ""):
        raise KeyboardInterrupt
