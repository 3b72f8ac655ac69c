"""Files of torch.save that were may be malicious, or got damaged: refused, and nothing of them run."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import references
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import Unsupported, WeightsError
from ztorch.model.sequential import Sequential
from ztorch.weights import pickles

RAN: list[str] = []


def model() -> Sequential:
    return Sequential([L.Input((3,)), L.Dense(2)])


def zipped(path: Path, data: bytes, root: str = "archive/", **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{root}data.pkl", data)
        for name, content in {"data/0": bytes(24), "data/1": bytes(8), **members}.items():
            file.writestr(f"{root}{name}", content)
    return path


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any):
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(("thing", "name"), [
    (lambda p: Calls(os.system, f"touch {p}/ran"), "posix.system"),
    (lambda p: Calls(eval, f"open('{p}/ran', 'w')"), "(builtins|__builtin__).eval"),
    (lambda p: Calls(RAN.append, "x"), "(builtins|__builtin__).getattr"),
    (lambda p: Calls(__import__, "antigravity"), "(builtins|__builtin__).__import__"),
    (lambda p: np.ones(3), r"numpy\.\S+"),
    (lambda p: os.path.join, "posixpath.join"),
    (lambda p: {"w": [Calls(os.system, f"touch {p}/ran")]}, "posix.system"),
])
@pytest.mark.parametrize("protocol", range(6))
def test_functions_named_by_pickles_are_not_called(thing: Any, name: str, protocol: int,
                                                   tmp_path: Path) -> None:
    data = pickle.dumps(thing(tmp_path), protocol)
    file = zipped(tmp_path / "w.pt", data)
    with pytest.raises(WeightsError) as error:
        model().load_weights(file)
    assert not (tmp_path / "ran").exists() and not RAN
    if protocol in (2, 3, 4, 5):
        assert error.match(f"refers to {name}, which no state dict needs; none of its code was run|"
                           "uses the pickle opcode")
        assert "state_dict()" in str(error.value)


def test_a_whole_model_is_refused_by_the_name_of_its_class(tmp_path: Path) -> None:
    torch = references.torch()
    torch.save(torch.nn.Linear(3, 2), tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=r"refers to torch\.nn\.modules\.linear\.Linear.*state_dict"):
        model().load_weights(tmp_path / "w.pt")


def test_the_old_file_format_is_refused_with_a_fix(tmp_path: Path) -> None:
    torch = references.torch()
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "w.pt",
               _use_new_zipfile_serialization=False)
    with pytest.raises(Unsupported, match=r"PyTorch wrote before 1\.6.*torch\.save"):
        model().load_weights(tmp_path / "w.pt")


def test_torchscript_is_refused(tmp_path: Path) -> None:
    file = zipped(tmp_path / "w.pt", b"}.", **{"constants.pkl": b"}."})
    with pytest.raises(Unsupported, match="TorchScript"):
        model().load_weights(file)


# -- tensors beyond their storage ------------------------------------------------------------------


class Stored:
    """A pickled tensor as torch.save would write it, with numbers of our choice."""

    def __init__(self, *numbers: Any, key: Any = "0", count: Any = 6, kind: str = "FloatStorage"):
        self.numbers, self.id = numbers, ("storage", kind, key, "cpu", count)


def pickled(tensor: Stored) -> bytes:
    """{"0.weight": tensor}, its opcodes written by hand."""
    def plain(x: Any) -> bytes:
        return pickle.dumps(x, 2)[2:-1]

    kind = tensor.id[1]
    stored = (b"(" + plain("storage") + b"ctorch\n" + kind.encode() + b"\n" + plain(tensor.id[2])
              + plain("cpu") + plain(tensor.id[4]) + b"tQ")
    return (b"\x80\x02}" + plain("0.weight") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored
            + b"".join(map(plain, tensor.numbers)) + b"\x89}tRs.")


GOOD = Stored(0, (2, 3), (3, 1))


def storage(key: str) -> bytes:
    return {"0": bytes(24), "1": bytes(8)}[key]


def test_the_base_of_views_is_read() -> None:
    actual = pickles.load(pickled(GOOD), storage, "here")
    assert actual["0.weight"].array.shape == (2, 3)


@together()
@pytest.mark.parametrize("tensor", [
    Stored(1, (2, 3), (3, 1)), Stored(-1, (2, 3), (3, 1)), Stored(0, (2, 3), (4, 1)),
    Stored(0, (2, 3), (-3, 1)), Stored(0, (-2, -3), (3, 1)), Stored(0, (3, 3), (3, 1)),
    Stored(0, (1 << 40, 3), (0, 1)), Stored(0, (1 << 62, 1 << 62), (0, 0)),
    Stored(0, (2, 3), (1 << 62, 1)), Stored(1 << 70, (2, 3), (3, 1)), Stored(0, (2, 3), (3,)),
    Stored(0, (2.0, 3), (3, 1)), Stored(0, (True, 3), (3, 1)), Stored(0, [2, 3], [3, 1]),
    Stored(0, (1,) * 33, (1,) * 33), Stored(0, "ab", "cd"), Stored(None, (2, 3), (3, 1)),
    Stored(0, (0, 1 << 62), (1, 1)),
    Stored(0, (2, 3), (3, 1), count=7), Stored(0, (2, 3), (3, 1), count=-6),
    Stored(0, (2, 3), (3, 1), count=6.0), Stored(0, (2, 3), (3, 1), key="2"),
    Stored(0, (2, 3), (3, 1), key="../0"), Stored(0, (2, 3), (3, 1), key=0),
    Stored(0, (2, 3), (3, 1), kind="DoubleStorage"), Stored(0, (2, 3), (3, 1), kind="float32"),
    Stored(0, (2, 3), (3, 1), kind="ComplexFloatStorage"),
])
def test_impossible_tensors(tensor: Stored) -> None:
    with pytest.raises(WeightsError, match=r"here is damaged|refers to torch\.ComplexFloatStorage"):
        pickles.load(pickled(tensor), storage, "here")


@together()
@pytest.mark.parametrize("data", [
    b"", b".", b"\x80\x02", b"\x80\x02}", b"\x80\x02N", b"\x80\x02NN.", b"\x80\x02(N.", b"\x80\x02t.",
    b"\x80\x02h\x05.", b"\x80\x02}N.", b"\x80\x02N}s.", b"\x80\x02]NNs.", b"\x80\x02}(Nu.",
    b"\x80\x02NNb.", b"\x80\x02NQ.", b"\x80\x02)Q.", b"\x80\x02NNR.", b"\x80\x02NN\x93.",
    b"\x80\x02ctorch\nfloat32\n)R.",
    b"\x80\x02X\xff\xff\xff\x7fabc.", b"\x80\x02\x8d" + b"\xff" * 8 + b".", b"\x80\x02\x8b\xff\xff\xff\x7f.",
    b"\x80\x02X\x02\0\0\0\xff\xff.", b"\x80\x02}" + b"N\x85" * 2000 + b"Ns.", b"\x80\x02I" + b"9" * 9000 + b"\n.",
    b"\x80\x02}(})N" + b"u.", b"\x80\x02ctorch._utils\n_rebuild_parameter\nN\x85R.",
    b"\x80\x02ccollections\nOrderedDict\nN\x85R.", b"\x80\x02ctorch\nSize\n}\x85R.",
    b"\x80\x02}" + b"}\x94" * 50_000 + b".",
])
def test_pickles_that_make_no_sense(data: bytes) -> None:
    with pytest.raises(WeightsError):
        pickles.load(data, storage, "here")


def test_a_tuple_too_deep_to_hash_is_no_key() -> None:
    """Python hashes nested tuples in C, without a limit of depth."""
    with pytest.raises(WeightsError, match="a key that is a tuple"):
        pickles.load(b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.", storage, "here")


def test_an_immense_pickle_is_not_walked() -> None:
    with pytest.raises(WeightsError, match="at most"):
        pickles.load(bytes((16 << 20) + 1), storage, "here")


def sound() -> bytes:
    """A state dict as torch.save writes it, without torch."""
    weights = pickled(GOOD)[2:-2]
    return b"\x80\x02" + weights + b"s."


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_an_error_or_a_tensor_within_its_storage(changes: list) -> None:
    data = bytearray(sound())
    for at, byte in changes:
        data[at % len(data)] = byte
    try:
        result = pickles.load(bytes(data), storage, "here")
    except WeightsError:
        return
    for tensor in result.values() if isinstance(result, dict) else ():
        if isinstance(tensor, pickles.PickledTensor):
            assert tensor.array.sum() == 0 and tensor.array.size <= 6


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes(tail: bytes) -> None:
    try:
        pickles.load(b"\x80\x02" + tail + b".", storage, "here")
    except WeightsError:
        return


# -- the zip around it -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..", "a\\..\\x", "C:/x"])
def test_names_that_lead_elsewhere(name: str, tmp_path: Path) -> None:
    file = zipped(tmp_path / "w.pt", pickled(GOOD))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(WeightsError, match="is outside of its folder"):
        model().load_weights(file)


def test_compressed_and_doubled_members(tmp_path: Path) -> None:
    for method, names in ((zipfile.ZIP_DEFLATED, ["a/data.pkl"]),
                          (zipfile.ZIP_STORED, ["a/data.pkl", "a/data.pkl"])):
        with zipfile.ZipFile(tmp_path / "w.pt", "w", method) as archive:
            for name in names:
                archive.writestr(name, bytes(10_000))
        with pytest.raises(WeightsError, match=r"compressed|two members"):
            model().load_weights(tmp_path / "w.pt")


def whole(tmp_path: Path) -> tuple[bytes, list[np.ndarray]]:
    """A file of a Dense layer and its weights, made without torch."""
    def tensor(name: str, key: str, count: int, size: Any, stride: Any) -> bytes:
        one = pickled(Stored(0, size, stride, key=key, count=count))[3:-2]
        return one.replace(pickle.dumps("0.weight", 2)[2:-1], pickle.dumps(name, 2)[2:-1]) + b"s"

    weight, bias = np.arange(6, dtype="f4").reshape(2, 3), np.array([7, 8], "f4")
    data = b"\x80\x02}" + tensor("0.weight", "0", 6, (2, 3), (3, 1)) + tensor(
        "0.bias", "1", 2, (2,), (1,)) + b"."
    file = zipped(tmp_path / "w.pt", data, **{"data/0": weight.tobytes(), "data/1": bias.tobytes(),
                                              "byteorder": b"little"})
    return file.read_bytes(), [weight.T, bias]


def test_flipped_bits_and_truncation(tmp_path: Path) -> None:
    """Each is an error, or changed nothing that counts: a zip has bytes that mean nothing."""
    data, want = whole(tmp_path)
    ours, file, choose, refused = model(), tmp_path / "bad.pt", random.Random(0), 0
    for k in range(400):
        bad = bytearray(data)
        if k % 4:
            bad[choose.randrange(len(bad))] ^= 1 << choose.randrange(8)
        else:
            del bad[choose.randrange(4, len(bad)):]
        file.write_bytes(bad)
        try:
            ours.load_weights(file)
        except (WeightsError, Unsupported):
            refused += 1
            continue
        for a, b in zip(ours.get_weights(), want, strict=True):
            np.testing.assert_array_equal(a, b)
    assert refused > 250


def test_members_that_claim_too_many_bytes(tmp_path: Path) -> None:
    data, _ = whole(tmp_path)
    at = data.rindex(b"PK\1\2")
    for size in (1 << 31, 0xFFFFFFFE):
        bad = bytearray(data)
        struct.pack_into("<II", bad, at + 20, size, size)
        (tmp_path / "bad.pt").write_bytes(bad)
        with pytest.raises(WeightsError, match="claim more bytes"):
            model().load_weights(tmp_path / "bad.pt")


@pytest.mark.parametrize("data", [b"PK\3\4", b"PK\3\4" + bytes(100), b"\x80\x02}.", b"", b"x" * 50,
                                  b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + bytes(2000)])
def test_files_of_no_kind(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises((WeightsError, Unsupported)):
        model().load_weights(tmp_path / "w.pt")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "pipe", "a\0b"):
        with pytest.raises(WeightsError, match=r"cannot read|not a regular file"):
            model().load_weights(path)


def test_ordered_dicts_and_their_metadata() -> None:
    """As torch.save writes them: an OrderedDict with attributes."""
    state = OrderedDict(a=1)
    state._metadata = OrderedDict(version=2)  # type: ignore[attr-defined]
    buffer = io.BytesIO()
    pickle.Pickler(buffer, 2).dump(state)
    assert pickles.load(buffer.getvalue(), storage, "here") == {"a": 1}
