"""Kinds of files that people bring: functions that damage one of a kind, and its reader."""

from __future__ import annotations

import random
import shutil
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ztorch as zt
from tools.damage import bytes_changed, content_changed, message_changed
from tools.onnx_cases import cases, judge
from tools.onnx_tables import exceptions
from ztorch import layers as L
from ztorch.data.mnist import read_idx
from ztorch.data.sounds import read_wav
from ztorch.files.png import png
from ztorch.graph.op import leaf
from ztorch.layers.context import Context

FOLDERS = Path(__file__).parent.parent / "tests" / "interchange" / "folders"
NAME = "unlucky"  # of each damaged file: a word that no message has by chance


def network(*, ids: bool = False) -> zt.Sequential:
    """A small model with layers of several families."""
    layers = [L.Input((6,), dtype="int32"), L.Embedding(9, 4), L.LSTM(3), L.Dense(2)] if ids else [
        L.Input((6, 6, 2)), L.Conv2D(3, 3, activation="relu"), L.BatchNormalization(),
        L.MaxPooling2D(2), L.Flatten(), L.Dense(2)]
    return zt.Sequential(layers, seed=1)


def write_whole(folder: Path) -> None:
    """Whole files of all kinds. In a separate process: PyTorch takes much memory."""
    from benchmarks import peers

    write_data(folder)
    for ids in (False, True):
        (folder / "onnx").mkdir(exist_ok=True)
        network(ids=ids).export(folder / "onnx" / f"{ids}.onnx")
        network(ids=ids).save(folder / f"{ids}.keras")
    for suffix in (".safetensors", ".npz", ".gguf", ".weights.h5"):
        network().save_weights(folder / f"net{suffix}")
    network().compile("cpu:scalar", batch_size=2, optimizer="adam", loss="mse").save(
        folder / "net.zt")
    torch = peers.module("torch")
    torch.save(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3),
                                   torch.nn.Linear(12, 2)).state_dict(), folder / "net.pt")
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(48, 2)).eval()
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(
        net, (torch.zeros(2, 2, 6, 6),), dynamic_shapes=(batch,)), folder / "net.pt2")


def write_data(folder: Path) -> None:
    """Whole files of rows, as users have them."""
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    np.save(folder / "rows.npy", rows)
    (folder / "rows.idx").write_bytes(b"\0\0\x08\2" + bytes([0, 0, 0, 6, 0, 0, 0, 4, *range(24)]))
    cells = [f"{k}.5,{'fir' if k % 3 else 'oak'},2020-01-{k + 1:02d},{'yes' if k % 2 else 'no'}"
             for k in range(28)]
    (folder / "rows.csv").write_text("\n".join(["size,kind,day,sold", *cells]))
    (folder / "rows.png").write_bytes(png(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)))
    with wave.open(str(folder / "rows.wav"), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", "none"))
        file.writeframes(bytes(range(200)))


class Kind(NamedTuple):
    """Files of one kind: a function that writes and describes a damaged one, and the reader."""

    write: Callable[[Path, random.Random], Path]
    read: Callable[[Path], Any]
    share: float  # of all files


def from_file(path: Path, read: Callable[[Path], Any], share: float) -> Kind:
    """Damages one file, which can be read as it is."""
    data = path.read_bytes()
    read(path)

    def write(folder: Path, rng: random.Random) -> Path:
        damaged = folder / (NAME + "".join(path.suffixes))
        damaged.write_bytes(content_changed(path.name, data, rng))
        return damaged

    return Kind(write, read, share)


def from_folders(share: float) -> Kind:
    """Folders of Hugging Face, of which one file is damaged or left out."""
    folders = sorted(path for path in FOLDERS.iterdir() if (path / "config.json").exists())

    def write(folder: Path, rng: random.Random) -> Path:
        damaged = folder / NAME
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(rng.choice(folders), damaged, ignore=shutil.ignore_patterns("*.npz"))
        file = rng.choice(sorted(damaged.iterdir()))
        if rng.randrange(20):
            file.write_bytes(content_changed(file.name, file.read_bytes(), rng))
        else:
            file.unlink()
        return damaged

    return Kind(write, zt.load_model, share)


def from_messages(files: Sequence[Path], share: float) -> Kind:
    """ONNX files of networks."""
    import onnx

    models = [onnx.load(path) for path in files]

    def write(folder: Path, rng: random.Random) -> Path:
        return _damaged_message(rng.choice(models), folder, rng)

    return Kind(write, zt.onnx.load, share)


def from_suite(share: float) -> Kind:
    """Models of ONNX's own tests, loaded as layers and traced for the inputs of the test."""
    excepted = exceptions()
    tests = {case.name: case for case in cases(["node"]) if case.name not in excepted}
    names = sorted(tests)
    fixed: dict[str, tuple[str, ...]] = {}

    def write(folder: Path, rng: random.Random) -> Path:
        name = rng.choice(names)
        (folder / "name").write_text(name)
        return _damaged_message(tests[name].model, folder, rng)

    def read(path: Path) -> Any:
        case = tests[(path.parent / "name").read_text()]
        if case.name not in fixed:
            fixed[case.name] = judge(case, None).fixed
        inputs = dict(zip((i.name for i in case.model.graph.input), case.data[0][0], strict=False))
        layer: Any = zt.onnx.load_layer(path, constants={n: inputs[n] for n in fixed[case.name]})
        ports = layer.file.inputs
        shapes = [np.shape(inputs[p.name]) if p.name in inputs else
                  tuple(n if isinstance(n, int) else 2 for n in p.dims) for p in ports]
        return layer.run([leaf("input", p.name, shape, p.dtype)
                          for p, shape in zip(ports, shapes, strict=True)], Context())

    return Kind(write, read, share)


def _damaged_message(model: Any, folder: Path, rng: random.Random) -> Path:
    path, data = folder / f"{NAME}.onnx", model.SerializeToString()
    if rng.randrange(4):
        copy = type(model).FromString(data)
        message_changed(copy, rng)
        path.write_bytes(copy.SerializeToString())
    else:
        path.write_bytes(bytes_changed(data, rng))
    return path


def kinds(folder: Path) -> dict[str, Kind]:
    """All kinds, of the whole files in a folder."""

    def weights(path: Path) -> Any:
        return network().load_weights(path)

    return {
        "ONNX, its own tests": from_suite(0.3),
        "ONNX, networks": from_messages(sorted((folder / "onnx").iterdir()), 0.1),
        ".pt2": from_file(folder / "net.pt2", zt.load_model, 0.1),
        ".keras, images": from_file(folder / "False.keras", zt.load_model, 0.05),
        ".keras, texts": from_file(folder / "True.keras", zt.load_model, 0.05),
        "Hugging Face": from_folders(0.07),
        ".gguf": from_file(folder / "net.gguf", weights, 0.05),
        ".npz": from_file(folder / "net.npz", weights, 0.04),
        ".safetensors": from_file(folder / "net.safetensors", weights, 0.04),
        ".weights.h5": from_file(folder / "net.weights.h5", weights, 0.02),
        ".pt": from_file(folder / "net.pt", weights, 0.03),
        "artifacts": from_file(folder / "net.zt", zt.load, 0.05),
        ".npy": from_file(folder / "rows.npy", zt.data.read_table, 0.02),
        ".csv": from_file(folder / "rows.csv", lambda path: zt.Pipeline(
            zt.data.table(path, "sold")), 0.02),
        "IDX": from_file(folder / "rows.idx", read_idx, 0.02),
        ".png": from_file(folder / "rows.png", zt.utils.load_img, 0.02),
        ".wav": from_file(folder / "rows.wav", read_wav, 0.02)}
