"""Folders of images: order, classes, images that Pillow decodes, and files that are not images."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.data import images as images_room
from ztorch.errors import ConfigError, DataError, Unsupported

Image = pytest.importorskip("PIL.Image")
random = np.random.default_rng(3)


def save(path: Path, pixels: np.ndarray, **how: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **how)
    return path


def chunk(kind: bytes, content: bytes) -> bytes:
    return (struct.pack(">I", len(content)) + kind + content
            + struct.pack(">I", zlib.crc32(kind + content)))


def huge_png() -> bytes:
    """A file of a few bytes that says it is an image of 3.6 * 10**9 pixels."""
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))
            + chunk(b"IEND", b""))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Cats are dark, dogs are bright."""
    for k in range(9):
        save(tmp_path / "cats" / f"{k}.png", random.integers(0, 100, (6, 8, 3)).astype(np.uint8))
        save(tmp_path / "dogs" / f"{k}.png", random.integers(150, 256, (6, 8, 3)).astype(np.uint8))
    return tmp_path


def test_folders_are_classes_in_order(tmp_path: Path) -> None:
    gray = save(tmp_path / "b" / "x.png", np.full((4, 5), 51, np.uint8))
    color = save(tmp_path / "a" / "deep" / "y.PNG", random.integers(0, 256, (4, 5, 3)).astype(np.uint8))
    clear = save(tmp_path / "a" / "z.bmp", np.zeros((4, 5, 3), np.uint8))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    folder = zt.data.image_folder(tmp_path, size=(4, 5))
    assert folder.classes == ("a", "b", "empty") and folder.files == [color, clear, gray]
    [(x, y)] = folder
    assert x.shape == (3, 4, 5, 3) and x.dtype == np.float32
    assert y.tolist() == [0, 0, 1] and y.dtype == np.int32
    np.testing.assert_allclose(x[0], np.asarray(Image.open(color)) / 255.0, rtol=1e-6)
    assert (x[1] == 0).all() and np.allclose(x[2], 0.2)


@pytest.mark.parametrize(("channels", "shape"), [(1, (6, 8, 1)), (3, (6, 8, 3)), (4, (6, 8, 4))])
def test_channels(pets: Path, channels: int, shape: tuple[int, ...]) -> None:
    x, y = zt.data.image_folder(pets, (6, 8), channels=channels).arrays()
    assert x.shape == (18, *shape) and y.tolist() == [0] * 9 + [1] * 9
    assert channels != 4 or (x[..., 3] == 1).all()


def test_other_sizes_are_resized(tmp_path: Path) -> None:
    save(tmp_path / "a" / "wide.png", np.full((30, 50, 3), (255, 0, 102), np.uint8))
    [(x, _)] = zt.data.image_folder(tmp_path, size=(7, 9))
    np.testing.assert_allclose(x, np.broadcast_to([1.0, 0.0, 0.4], (1, 7, 9, 3)), rtol=1e-6)


def test_photos_are_rotated_upright(tmp_path: Path) -> None:
    pixels = random.integers(0, 256, (4, 6), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    save(tmp_path / "a" / "turned.png", pixels, exif=exif)
    [(x, _)] = zt.data.image_folder(tmp_path, size=(4, 6), channels=1)
    np.testing.assert_allclose(x[0, ..., 0], pixels[::-1, ::-1] / 255.0, rtol=1e-6)


def test_batches_shuffle_by_seed_and_pass(pets: Path) -> None:
    def passes(seed: int | None) -> list[list[int]]:
        folder = zt.data.image_folder(pets, (6, 8), batch_size=4, seed=seed)
        assert len(folder) == 5 and folder.rows == 18
        return [[int(v) for _, y in folder for v in y] for _ in range(2)]

    assert passes(None) == [[0] * 9 + [1] * 9] * 2
    first, second = passes(1)
    assert sorted(first) == sorted(second) == [0] * 9 + [1] * 9 and first != second
    assert passes(1) == [first, second] != passes(2)
    resumed = zt.data.image_folder(pets, (6, 8), batch_size=4, seed=1)
    resumed.epoch = 1
    assert [int(v) for _, y in resumed for v in y] == second


def test_split_and_fit(pets: Path) -> None:
    train, rest = zt.data.image_folder(pets, (6, 8), batch_size=5, seed=0).split(0.25)
    assert (train.rows, rest.rows) == (14, 4) and rest.seed is None
    assert not set(train._rows) & set(rest._rows) and len(set(train._rows) | set(rest._rows)) == 18

    def trained() -> zt.Program:
        model = zt.Sequential([L.Input((6, 8, 3)), L.RandomFlip(), L.GlobalAveragePooling2D(),
                               L.Dense(2, activation="softmax")])
        p = model.compile("cpu", batch_size=8, optimizer=zt.optimizers.Adam(0.1),
                          loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        again, _ = zt.data.image_folder(pets, (6, 8), batch_size=5, seed=0).split(0.25)
        p.fit(again, validation_data=rest, epochs=12, verbose=0)
        return p

    one, two = trained(), trained()
    assert one.history.history["val_accuracy"][-1] == 1.0
    assert all(np.array_equal(v, two.weights[n]) for n, v in one.weights.items())


def test_the_command_line_accepts_folders(pets: Path) -> None:
    from ztorch.commands.data import read_training

    (x, y), test, classes, files, _ = read_training(str(pets), (6, 8, 3))
    assert x.shape == (18, 6, 8, 3) and test is None and classes == ("cats", "dogs")
    assert [name.startswith("dogs") for name in files] == y.tolist() and len(set(files)) == 18
    assert 0 < y[-6:].sum() < 6  # the last rows are of both classes: they may validate
    assert all((image.mean() > 0.5) == label for image, label in zip(x, y, strict=True))
    with pytest.raises(ConfigError, match=r"models of inputs \(height, width, channels\), not \(4,\)"):
        read_training(str(pets), (4,))


def test_what_is_no_image_is_named(pets: Path) -> None:
    good = (pets / "cats" / "0.png").read_bytes()
    deep = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(deep, "PNG")
    for name, content, message in (
            ("cut.png", good[:len(good) // 2], "cut.png cannot be read as an image"),
            ("text.jpg", b"not an image", "text.jpg cannot be read as an image"),
            ("none.gif", b"", "none.gif cannot be read as an image"),
            ("huge.png", huge_png(), "huge.png.*(60000|bomb)"),
            ("deep.png", deep.getvalue(), "more than 8 bits"),
            # a page of PostScript: a decoder of Pillow would start a program to read it
            ("page.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "page.png cannot be")):
        path = pets / "cats" / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            list(zt.data.image_folder(pets, (6, 8)))
        path.unlink()


def test_images_beyond_the_limit_are_refused(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_room, "MOST_PIXELS", 47)
    with pytest.raises(DataError, match=r"0\.png has 8 x 6 pixels; ztorch reads images of up to 47"):
        list(zt.data.image_folder(pets, (6, 8)))


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no folder"):
        zt.data.image_folder(tmp_path / "nowhere", (4, 4))
    with pytest.raises(DataError, match=r"a folder of images for each class.*0 folders"):
        zt.data.image_folder(tmp_path, (4, 4))
    with pytest.raises(ConfigError, match=r"size=28\) must be \(height, width\)"):
        zt.data.image_folder(tmp_path, 28)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="channels=2"):
        zt.data.image_folder(tmp_path, (4, 4), channels=2)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unsupported, match=r"pip install ztorch\[images\]"):
        zt.data.image_folder(tmp_path, (4, 4))
