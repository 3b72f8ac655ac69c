"""Mutated artifacts: each is refused with an ArtifactError, or still means the same."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases.artifacts import apart, together, whole
from tests.cases.covering import full
from ztorch.errors import ArtifactError, DeviceError
from ztorch.runtime.load import open_artifact, read_artifact

HERE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture],
                max_examples=300 if full() else 100, derandomize=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "small.zt"


def refused(file: Path, data: bytes) -> bool:
    """Whether these bytes are refused; if not, they must mean the same as the whole file."""
    file.write_bytes(data)
    try:
        actual = read_artifact(file)
    except ArtifactError as error:
        assert str(file) in str(error)
        return True
    file.write_bytes(whole())
    right = read_artifact(file)
    assert actual[:2] == right[:2] and np.array_equal(actual.params, right.params)
    assert actual.metadata == right.metadata
    return False


def structure() -> list[int]:
    """Where headers, directory and end lie."""
    data, at, result = whole(), 0, []
    while data[at:at + 4] == b"PK\3\4":
        size, _, name = struct.unpack_from("<IIH", data, at + 18)
        result += range(at, at + 30 + name)
        at += 30 + name + size
    return [*result, *range(at, len(data))]


def flips() -> Iterator[tuple[int, int]]:
    """Each byte of the structure, and some hundred places elsewhere; in a full run a thousand."""
    rng = random.Random(5)
    for at in structure():
        yield at, 1 << rng.randrange(8)
    for _ in range(1000 if full() else 300):
        yield rng.randrange(len(whole())), 1 << rng.randrange(8)


def test_one_flipped_bit(file: Path) -> None:
    for at, bit in flips():
        data = bytearray(whole())
        data[at] ^= bit
        assert refused(file, bytes(data)), at


def test_cut_short_or_longer(file: Path) -> None:
    data, rng = whole(), random.Random(6)
    for cut in (0, 1, 3, 4, 21, 22, 85, 86, 87, *(rng.randrange(len(data)) for _ in range(100))):
        assert refused(file, data[:cut])
        assert refused(file, data[cut + 1:]) or not cut + 1
    for extra in (b"\0", b"PK\5\6", data):
        assert refused(file, data + extra)
        assert refused(file, extra + data)


def test_pieces_lost_doubled_zeroed_or_swapped(file: Path) -> None:
    data, rng = whole(), random.Random(7)
    for _ in range(150):
        a, b = sorted(rng.randrange(len(data)) for _ in range(2))
        piece = data[a:b]
        for new in (data[:a] + data[b:], data[:b] + piece + data[b:],
                    data[:a] + bytes(len(piece)) + data[b:], data[:a] + piece[::-1] + data[b:]):
            assert new == data or refused(file, new)


@HERE
@given(st.binary(max_size=300))
def test_noise(file: Path, noise: bytes) -> None:
    assert refused(file, noise) and refused(file, b"PK\3\4" + noise)


# -- manifests that are sealed and well-formed, but wrong ------------------------------------------

NONSENSE = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.integers(), st.floats(allow_nan=False,
                                                                           allow_infinity=False),
    st.sampled_from([1 << 31, 1 << 32, 1 << 63, 1 << 64, -1, 1e308, "", "zt_", "float32", "/etc",
                     "../x", "weights.safetensors", "\0", "𝔘", [], {}, [[]], [-1], [1 << 40, 1]]),
    st.text(max_size=5), st.lists(st.integers(-1, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(
        value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@HERE
@given(st.data())
def test_a_value_of_the_manifest(file: Path, data: st.DataObject) -> None:
    """Nothing but an ArtifactError comes out, or an artifact; and no shape, dtype or name of it
    is one that the code does not expect."""
    manifest, files = apart(whole())
    *path, last = data.draw(st.sampled_from(list(places(manifest))[1:]))
    changed = copy.deepcopy(manifest)
    inner: Any = changed
    for key in path:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(NONSENSE)
    else:
        del inner[last]
    file.write_bytes(together(changed, files, rehash=False))
    try:
        result = open_artifact(file)
    except ArtifactError as error:
        assert str(file) in str(error)
        return
    spec = result.targets[0].spec
    for t in (*spec.states.values(), *spec.functions["predict"].inputs.values()):
        assert all(type(n) is int and n > 0 for n in t.shape)
    assert all(s.offset + s.nbytes <= spec.params_bytes for s in spec.states.values())
    result.params(result.targets[0])


@HERE
@given(st.recursive(NONSENSE, lambda x: st.lists(x, max_size=3) | st.dictionaries(
    st.sampled_from(["format", "version", "files", "targets", "program", "training", "x"]), x,
    max_size=4), max_leaves=8))
def test_any_json_for_a_manifest(file: Path, manifest: Any) -> None:
    import json

    _, files = apart(whole())
    for tail in (b"", b"]", b" "):
        file.write_bytes(together(json.dumps(manifest).encode() + tail, files))
        with pytest.raises((ArtifactError, DeviceError)):
            read_artifact(file)


@HERE
@given(st.binary(max_size=60), st.integers(0, 200), st.booleans())
def test_any_weights(file: Path, noise: bytes, at: int, keep: bool) -> None:
    """Bytes that are hashed as they are, but are not safetensors."""
    manifest, files = apart(whole())
    weights = files["weights.safetensors"]
    files["weights.safetensors"] = weights[:at] + noise + weights[at + len(noise) * keep:]
    file.write_bytes(together(manifest, files))
    try:
        artifact = open_artifact(file)
    except ArtifactError as error:
        assert "weights.safetensors" in str(error)
    else:
        artifact.params(artifact.targets[0])
