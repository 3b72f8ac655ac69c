"""GGUF files and .npz files: reading, damage, and names that would mislead."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ConfigError, Unsupported, WeightsError, ZtorchError
from ztorch.layers import Dense, Input
from ztorch.weights.gguf_blocks import BLOCK_TYPES

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0], "MXFP4": [], "TQ1_0": [52], "TQ2_0": [64]}  # where float16 scales lie

# Of two blocks of the bytes below: elements 0, 7, 21, 45 and the last one, and the sum of magnitudes, as the
# package gguf 0.19 decodes them.
EXPECTED = {
    "Q4_0": [0.00258255, 0.00064563751, -0.0016140938, 0.00048106909, -0.00034362078, 0.050302863],
    "Q4_1": [-0.0028295517, -0.0047664642, -0.0054121017, 0.0034346581, 0.0015969276, 0.19266069],
    "Q5_0": [0.001291275, 0.0045194626, 0.00064563751, -0.0054244995, -0.0081367493, 0.25864887],
    "Q5_1": [-0.0018610954, -0.0034751892, -0.0057349205, 0.042472839, 0.014720917, 1.2211461],
    "Q8_0": [-0.0258255, 0.0083932877, -0.0054879189, 40.614014, -43.544922, 868.62898],
    "Q2_K": [-0.00084400177, 0.00014781952, 0.0019311905, 0.0008046627, 0.00077015162, 0.77024448],
    "Q3_K": [-0.010910034, 0.0054550171, -0.032730103, -0.065460205, 2.5317993, 678.97731],
    "Q4_K": [-0.046879768, 0.024140358, -0.053981781, 0.01777935, 0.0029798746, 17.349945],
    "Q5_K": [-0.18181801, -0.10369587, -0.068185806, -0.15977097, 0.16967773, 10289.463],
    "Q6_K": [0.80066013, 0.036393642, -0.20776176, -0.68547249, 0.59181976, 318.89294],
    "IQ4_NL": [0.040997982, 0.0071020126, -0.022274494, 0.0077658296, -0.0044670701, 0.70903444],
    "IQ4_XS": [-0.5455637, 0.0083932877, 0.94844151, 0.46195364, 156.26953, 37059.334],
    "MXFP4": [-6, 3, 6, -0.25, 0.5, 225.5],
    "TQ1_0": [-0.092407227, 0.092407227, -0.092407227, 0.092407227, 0, 16.05098],
    "TQ2_0": [-0.00073957443, -0.0014791489, -0.0014791489, 0.00073957443, 0, 1.6216331],
}


def blocks(name: str) -> np.ndarray:
    """Two blocks of bytes without a pattern, whose float16 numbers are below 2."""
    kind = next(b for b in BLOCK_TYPES.values() if b.name == name)
    rows = ((np.arange(2 * kind.bytes) * 167 + 89) * 2654435761 >> 13).astype(np.uint8)
    rows = rows.reshape(2, kind.bytes)
    for at in HALVES[name]:
        rows[:, at + 1] &= 0xBF
    if name == "MXFP4":  # its scale is an exponent
        rows[:, 0] = 128, 126
    return rows


def test_blocks() -> None:
    for kind in BLOCK_TYPES.values():
        numbers = kind.decode(blocks(kind.name))
        assert numbers.shape == (2, kind.numbers) and numbers.dtype == np.float32
        flat = numbers.reshape(-1)
        actual = [*flat[[0, 7, 21, 45, -1]].tolist(), float(np.abs(flat).sum(dtype=np.float64))]
        np.testing.assert_allclose(actual, EXPECTED[kind.name], rtol=1e-6, err_msg=kind.name)


def text(s: str) -> bytes:
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(tensors: dict[str, tuple[int, tuple[int, ...], bytes]], version: int = 3) -> bytes:
    """A file of tensors: type, shape as NumPy has it, bytes."""
    pairs = [text("general.name") + struct.pack("<I", 8) + text("tiny"),
             text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
             text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
             text("general.alignment") + struct.pack("<II", 4, 64)]
    infos, data = b"", b""
    for name, (kind, shape, raw) in tensors.items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind,
                                          len(data))
        data += raw + bytes(-len(raw) % 64)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + infos
    return head + bytes(-len(head) % 64) + data


KERNEL = np.arange(64, dtype=np.float32).reshape(2, 32)  # as PyTorch has it, (out, in)
Q8 = np.concatenate([np.concatenate([np.array([0.5], "<f2").view(np.uint8), np.arange(
    row, row + 32, dtype=np.int8).view(np.uint8)]) for row in (0, 32)])


def model() -> zt.Sequential:
    return zt.Sequential([Input((32,)), Dense(2, name="dense")])


FILES = {  # the two weights in several types
    "float": {"dense.weight": (0, (2, 32), KERNEL.tobytes()),
              "dense.bias": (1, (2,), np.array([1, -2], "<f2").tobytes())},
    "quantized": {"dense.weight": (8, (2, 32), Q8.tobytes()),
                  "dense.bias": (30, (2,), np.array([0x3F80, 0xC000], "<u2").tobytes())},
}


def test_a_file_is_loaded_by_names(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    for kind, tensors in FILES.items():
        path.write_bytes(gguf(tensors))
        loaded = model()
        loaded.load_weights(path)
        kernel, bias = loaded.get_weights()
        np.testing.assert_array_equal(kernel, KERNEL.T if kind == "float" else KERNEL.T / 2)
        np.testing.assert_array_equal(bias, [1, -2])


def test_names_of_llama_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf({name.replace("dense", "output"): t for name, t in FILES["float"].items()}))
    loaded = model()
    loaded.load_weights(path, names={"dense": "output"})
    np.testing.assert_array_equal(loaded.get_weights()[0], KERNEL.T)


def test_damage_is_an_error(tmp_path: Path) -> None:
    path, data = tmp_path / "w.gguf", gguf(FILES["quantized"])
    end = len(data) - 60  # the last bytes only fill up
    for n in range(4, end, 3):
        path.write_bytes(data[:n])
        with pytest.raises(WeightsError, match="is not a complete GGUF file"):
            model().load_weights(path)
    random, failed = np.random.default_rng(0), 0
    for _ in range(200):
        changed = np.frombuffer(data, np.uint8).copy()
        changed[random.integers(4, 300, 2)] = random.integers(0, 256, 2)
        path.write_bytes(changed.tobytes())
        try:
            model().load_weights(path)
        except ZtorchError:
            failed += 1
    assert failed > 100


def test_what_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf(FILES["float"], version=1))
    with pytest.raises(Unsupported, match="version 1"):
        model().load_weights(path)
    path.write_bytes(gguf({**FILES["float"], "x": (16, (1, 256), bytes(66))}))
    with pytest.raises(Unsupported, match=r"tensor 'x' has the type IQ2_XXS.*Q4_K"):
        model().load_weights(path)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=["stored", "deflated"])
def test_arrays_of_numpy(write: Any, tmp_path: Path) -> None:
    path, loaded = tmp_path / "w.npz", model()
    write(path, **{"dense/kernel": np.asfortranarray(KERNEL.T), "dense/bias": np.float64([3, 4])})
    loaded.load_weights(path)
    np.testing.assert_array_equal(loaded.get_weights()[0], KERNEL.T)
    write(path, **{"dense.weight": KERNEL, "dense.bias": np.float16([5, 6])})
    loaded.load_weights(path)
    assert loaded.get_weights()[1].tolist() == [5, 6]
    for objects in ({"dense/kernel": np.array([None])}, {"dense/kernel": np.array(["text"])}):
        write(path, **objects)
        with pytest.raises(WeightsError, match=r"w.npz is not a readable .npz file"):
            loaded.load_weights(path)
    data = path.read_bytes()
    for n in range(4, len(data), 7):
        path.write_bytes(data[:n])
        with pytest.raises(ZtorchError):
            loaded.load_weights(path)


@pytest.mark.parametrize("name", ["w.gguf", "W.npz"])
@pytest.mark.parametrize("layout", [None, "torch"])
def test_written_and_read(name: str, layout: str | None, tmp_path: Path) -> None:
    net, other = model(), model()
    random = np.random.default_rng(5)
    for w in net.weights:
        w.value = random.normal(size=w.shape).astype(np.float32)
    net.save_weights(tmp_path / name, layout=layout)
    other.load_weights(tmp_path / name)
    for a, b in zip(net.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ConfigError, match="layout 'ztorch': GGUF"):
        net.save_weights(tmp_path / "w.gguf", layout="ztorch")


@pytest.mark.parametrize("name", ["w.pt2", "w.ckpt", "w.json", "w.tar.gz", "w.txt", "w.html", "w.c"])
def test_a_name_of_another_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"whose name does not end in .safetensors; .*\.safetensors"):
        model().save_weights(tmp_path / name)
    assert not (tmp_path / name).exists()
