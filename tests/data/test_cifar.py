"""CIFAR's binary files, made small, and their possible errors; MNIST's place taken."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ztorch import data, settings
from ztorch.data import cifar, locations, mnist
from ztorch.errors import DataError

FORMS = {"cifar10": cifar._TEN, "cifar100": cifar._HUNDRED}


@pytest.fixture(autouse=True)
def few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "RECORDS", 6)


def records(count: int, labels: int, classes: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, size=(count, labels + 3072)).astype(np.uint8)
    rows[:, :labels] = random.integers(0, classes, size=(count, labels))
    return rows


def members(name: str) -> dict[str, np.ndarray]:
    form = FORMS[name]
    names = (*form.train, form.test)
    return {n: records(6 * (form.per_file if n in form.train else 1), form.labels, form.classes, k)
            for k, n in enumerate(names)}


def unpack(name: str, folder: Path) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    files = members(name)
    for member, rows in files.items():
        (folder / member).write_bytes(rows.tobytes())
    return files


def pack(name: str, folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    path = folder / FORMS[name].archive
    with tarfile.open(path, "w:gz") as archive:
        for member, content in files.items():
            info = tarfile.TarInfo(f"{FORMS[name].folder}/{member}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.cheap
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("inside", [False, True])
def test_unpacked_files(tmp_path: Path, name: str, inside: bool) -> None:
    form = FORMS[name]
    files = unpack(name, tmp_path / form.folder if inside else tmp_path / "own")
    (x, y), (x_test, y_test) = data.load(name, path=tmp_path if inside else tmp_path / "own")
    assert x.shape == (30, 32, 32, 3) and x_test.shape == (6, 32, 32, 3)
    assert x.dtype == np.float32 and y.dtype == np.int32 and x.flags.c_contiguous
    rows = np.concatenate([files[n] for n in form.train])
    assert np.array_equal(y, rows[:, form.labels - 1])
    for row, column, channel in ((0, 0, 0), (3, 7, 1), (31, 31, 2)):
        at = form.labels + channel * 1024 + row * 32 + column  # planes of red, green, blue
        np.testing.assert_allclose(x[:, row, column, channel], rows[:, at] / 255.0, rtol=1e-6)
    assert np.array_equal(y_test, files[form.test][:, form.labels - 1])


@pytest.mark.parametrize("name", FORMS)
def test_the_archive_is_read_as_it_is(tmp_path: Path, name: str,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    files = members(name)
    path = pack(name, tmp_path / "data" / name, {n: r.tobytes() for n, r in files.items()})
    with pytest.raises(DataError, match=f"not the published file.*{FORMS[name].md5}"):
        data.load(name, path=path.parent)
    result = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "_TEN" if name == "cifar10" else "_HUNDRED",
                        replace(FORMS[name], md5=result))
    monkeypatch.chdir(tmp_path)
    (x, y), _ = data.load(name)
    assert len(x) == 30 and y[0] == files[FORMS[name].train[0]][0, FORMS[name].labels - 1]
    with settings.using(data=str(tmp_path / "data")):
        assert np.array_equal(data.load(name)[0][0], x)
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing was unpacked


def test_damaged_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "digest", lambda path: cifar._TEN.md5)
    files = {n: r.tobytes() for n, r in members("cifar10").items()}
    lost = pack("cifar10", tmp_path / "lost", dict(list(files.items())[:-1]))
    with pytest.raises(DataError, match=r"lacks test_batch\.bin"):
        data.load("cifar10", path=lost.parent)
    whole = pack("cifar10", tmp_path / "whole", files)
    content = whole.read_bytes()
    for wrong in (content[:len(content) // 2], b"<html>", b""):
        whole.write_bytes(wrong)
        with pytest.raises(DataError, match=r"is damaged .*download it again"):
            data.load("cifar10", path=whole.parent)


def test_damaged_files(tmp_path: Path) -> None:
    unpack("cifar10", tmp_path / "c")
    test = tmp_path / "c" / "test_batch.bin"
    content = test.read_bytes()
    for wrong, message in ((content[:-1], "should hold 6 images in 18,438 bytes, but holds 18,437"),
                           (content + b"x", "holds more"), (b"", "but holds 0"),
                           (b"\x0a" + content[1:], r"image 0 is of class 10, but classes are 0\.\.9")):
        test.write_bytes(wrong)
        with pytest.raises(DataError, match=f"test_batch.bin.*{message}"):
            data.load("cifar10", path=tmp_path / "c")
    test.unlink()
    with pytest.raises(DataError, match=r"lacks test_batch\.bin; unpack"):
        data.load("cifar10", path=tmp_path / "c")


def test_where_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"download cifar-100-binary\.tar\.gz from .*ZTORCH_DATA"):
        data.load("cifar100")


def test_fashion_mnist_replaces_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"what was published")
    actual = locations.digest(tmp_path / "train-images-idx3-ubyte.gz")
    assert actual == hashlib.md5(b"what was published").hexdigest()
    monkeypatch.setattr(mnist, "_PUBLISHED", {actual: "fashion_mnist"})
    with pytest.raises(DataError, match="is the file of fashion_mnist, not of mnist"):
        data.load("mnist", path=tmp_path)
