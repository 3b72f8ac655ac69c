"""HDF5 files that were damaged, or may be malicious: errors, soon, in little memory, and never a look
into another file."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.weights.keras_files import changed, model, replaced, written
from ztorch.errors import WeightsError, ZtorchError
from ztorch.layers import Input
from ztorch.model.sequential import Sequential

h5py = pytest.importorskip("h5py")
SECRET = np.arange(12, dtype=np.float32).reshape(4, 3)


def spoiled(data: bytes, seed: int) -> bytes:
    """With bits, bytes and numbers changed, or bytes from elsewhere; or cut off."""
    choose, bad = random.Random(seed), bytearray(data)
    heap = bad.index(b"GCOL")
    for _ in range(choose.choice([1, 1, 2, 4, 16])):
        at = (heap + choose.randrange(160)) if seed % 3 == 0 else choose.randrange(len(bad) - 8)
        way, other = choose.random(), choose.randrange(len(bad) - 64)
        if way < 0.5:
            bad[at] ^= 1 << choose.randrange(8)
        elif way < 0.7:
            bad[at:at + 8] = choose.choice([b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f",
                                            other.to_bytes(8, "little"),
                                            ((-16) % 2**64).to_bytes(8, "little")])
        elif way < 0.95:
            width = choose.randrange(1, 64)
            bad[at:at + width] = bad[other:other + width]
        else:
            del bad[max(at, 64):]
            break
    return bytes(bad)


def attack(path: str, first: int, count: int) -> None:
    """Loads many spoiled versions of a file; prints how many were refused and the memory it took. Runs in a separate
    process, which a crash or a walk without end would not outlive."""
    data, ours, refused = Path(path).read_bytes(), model(), 0
    bad = Path(path).with_name("bad.weights.h5")
    ours.load_weights(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + count):
        bad.write_bytes(spoiled(data, seed))
        try:
            ours.load_weights(bad)
        except ZtorchError:
            refused += 1
    print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)


@pytest.mark.parametrize(("first", "count"), [
    (0, 250), pytest.param(10_000, 250, marks=pytest.mark.slow),
    pytest.param(10_250, 10_000, marks=pytest.mark.full)])
def test_spoiled_files_are_errors_or_weights(first: int, count: int, tmp_path: Path) -> None:
    written(tmp_path)
    code = (f"from tests.weights.test_hostile_hdf5 import attack\n"
            f"attack({str(tmp_path / 'w.weights.h5')!r}, {first}, {count})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    refused, megabytes = map(int, done.stdout.split())
    assert refused > count // 4 and megabytes < 50


def heap(tmp_path: Path) -> tuple[bytearray, int]:
    """A file, and where the heap lies that holds its texts."""
    data = bytearray(written(tmp_path))
    return data, data.index(b"GCOL")


@pytest.mark.parametrize(("at", "value"), [
    (24, (-16) % 2**64), (24, 1 << 40), (24, 2**63 - 8), (24, 4), (8, 1 << 40), (8, 2**64 - 1),
    (8, 40)], ids=hex)
def test_heaps_that_would_be_walked_for_ever(at: int, value: int, tmp_path: Path) -> None:
    """The size of the first text (at 24), and that of the heap (at 8)."""
    data, start = heap(tmp_path)
    data[start + at:start + at + 8] = value.to_bytes(8, "little")
    (tmp_path / "bad.weights.h5").write_bytes(data)
    with pytest.raises(WeightsError, match=r"damaged or truncated \((a heap|the objects of a heap)"):
        model().load_weights(tmp_path / "bad.weights.h5")


def test_numbers_that_look_like_a_heap_are_numbers(tmp_path: Path) -> None:
    """Four bytes of a weight are its name, and the next four no version of it."""
    ours = Sequential([Input((4,)), *model().layers])
    kernel = np.frombuffer(b"GCOL" + b"\0\0\0\0" * 11, np.float32).reshape(4, 3)
    ours.set_weights([kernel, *ours.get_weights()[1:]])
    ours.save_weights(tmp_path / "w.weights.h5")
    again = model()
    again.load_weights(tmp_path / "w.weights.h5")
    assert again.get_weights()[0].tobytes() == kernel.tobytes()


# -- other files -------------------------------------------------------------------------------------


def secret(tmp_path: Path) -> Path:
    """A file with weights that fit, which no other file may show."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["layers/dense/vars/0"] = SECRET
        file["x"] = SECRET
    SECRET.tofile(tmp_path / "secret.bin")
    return tmp_path


def linked(at: str, link: Any) -> Any:
    def change(file: Any) -> None:
        del file[at]
        file[at] = link
    return change


def virtual(file: Any, where: str) -> None:
    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource(where, "x", (4, 3))
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_virtual_dataset("0", layout)


def external(file: Any, where: str) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_dataset("0", (4, 3), "f4", external=[(where, 0, 48)])


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("how", ["weight", "group", "vars", "layers", "virtual", "external"])
def test_nothing_is_read_from_elsewhere(how: str, absolute: bool, tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    folder = secret(tmp_path) if absolute else Path()
    secret(tmp_path)
    monkeypatch.chdir(tmp_path)
    there = str(folder / "secret.h5")
    change = {
        "weight": linked("layers/dense/vars/0", h5py.ExternalLink(there, "/x")),
        "group": linked("layers/dense", h5py.ExternalLink(there, "/layers/dense")),
        "vars": linked("layers/dense/vars", h5py.ExternalLink(there, "/layers/dense/vars")),
        "layers": linked("layers", h5py.ExternalLink(there, "/layers")),
        "virtual": lambda file: virtual(file, there),
        "external": lambda file: external(file, str(folder / "secret.bin"))}[how]
    ours = model()
    with pytest.raises(WeightsError, match=r"has a link|does not have its numbers"):
        ours.load_weights(changed(tmp_path, change))
    assert not np.array_equal(ours.get_weights()[0], SECRET)


# -- within the file ---------------------------------------------------------------------------------


def references(file: Any) -> None:
    there = file["layers/dense_1/vars/0"].ref
    replaced(np.full((4, 3), there, h5py.ref_dtype), dtype=h5py.ref_dtype)(file)


def texts(file: Any) -> None:
    replaced(np.full((4, 3), "x" * 1000, object), dtype=h5py.string_dtype())(file)


def wide(file: Any) -> None:
    """Records of many numbers each."""
    replaced(np.zeros((4, 3), [("a", "f4", (1000,))]))(file)


def bomb(file: Any) -> None:
    """A few bytes that decompress to many: a chunk of zeros, larger than the array."""
    del file["layers/dense/vars/0"]
    data = file["layers/dense/vars"].create_dataset(
        "0", (4, 3), "f4", chunks=(1 << 13, 1 << 13), maxshape=(None, None), compression="gzip")
    data[...] = 1.0


def cycle(file: Any) -> None:
    """Many ways round, each of them longer than any model is deep."""
    for k in range(5):
        file[f"layers/dense/again{k}"] = file["layers"]
        file[f"layers/way{k}"] = file["/"]


def soft(file: Any) -> None:
    file["layers/dense/a"] = h5py.SoftLink("/layers/dense/a")


@pytest.mark.parametrize(("change", "message"), [
    (references, r"not numbers"), (texts, "192 bytes, not 96"), (wide, "not numbers"),
    (bomb, "is stored in chunks"), (cycle, "more groups than any model"), (soft, "has a link 'a'")],
    ids=lambda x: getattr(x, "__name__", ""))
def test_things_within_a_file_that_are_no_weights(change: Any, message: str, tmp_path: Path) -> None:
    path = changed(tmp_path, change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeightsError, match=message):
        model().load_weights(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_shape_larger_than_memory(tmp_path: Path) -> None:
    """The dimensions of a dataset in place, changed to 2**40 each."""
    raw = bytearray(written(tmp_path))
    result = raw.index((4).to_bytes(8, "little") + (3).to_bytes(8, "little"))
    for k in range(result, result + 16, 8):
        raw[k:k + 8] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "bad.weights.h5").write_bytes(raw)
    with pytest.raises(WeightsError, match=r"damaged or truncated|does not have its numbers"):
        model().load_weights(tmp_path / "bad.weights.h5")
