"""Reads an artifact: every hash, size and bound is checked before anything of it is used.

Needs no compiler. The checks find damage, and files that are not what they claim to be; they do
not make code harmless: like any program, an artifact runs with the rights of whoever runs it.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import boolean
from ztorch.errors import ArtifactError, DeviceError, WeightsError
from ztorch.files import safetensors
from ztorch.files.container import AGAIN, MANIFEST, check, members, read_file
from ztorch.host import processor
from ztorch.host.memory import aligned
from ztorch.runtime import manifest
from ztorch.runtime.manifest import MOST_BYTES, Field
from ztorch.runtime.spec import ProgramSpec

WEIGHTS = "weights.safetensors"
_HASH = re.compile(r"[0-9a-f]{64}")


class Loaded(NamedTuple):
    """What it takes to run: see `ztorch.runtime.executable.Executable`."""

    spec: ProgramSpec
    code: bytes
    params: np.ndarray
    metadata: dict[str, Any]  # "training" is where training stood, or None


class Compilation(NamedTuple):
    """The program compiled for one target."""

    spec: ProgramSpec
    code: memoryview
    constants: memoryview

    def refusal(self) -> str:
        """Why this machine cannot run it; empty if it can."""
        if self.spec.backend != "cpu":
            from ztorch.runtime.devices import lacking

            return lacking(self.spec)
        if self.spec.arch != processor.architecture():
            return f"is for {self.spec.arch} processors"
        missing = sorted(set(self.spec.needs) - processor.features())
        return f"needs {', '.join(missing)}" if missing else ""


class Artifact(NamedTuple):
    """A whole file, checked; made for this machine or for another."""

    where: str
    version: int
    ztorch: str
    metadata: dict[str, Any]
    training: dict[str, Any] | None
    sizes: dict[str, int]  # of each member
    weights: safetensors.Tensors
    targets: tuple[Compilation, ...]

    def params(self, target: Compilation) -> np.ndarray:
        """States and constants at their places, in a block that an Executable may adopt."""
        block = aligned(target.spec.params_bytes)
        for s in target.spec.states.values():
            if s.derived:
                continue
            kept = block[s.offset:s.offset + s.nbytes]
            kept = kept.view(np.uint8 if s.dtype is boolean else s.dtype.numpy)
            kept[...] = self.weights[s.name][1].reshape(-1)
        start = 0
        for at, size in target.spec.constants:
            block[at:at + size] = np.frombuffer(target.constants, np.uint8, size, start)
            start += size
        return block


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """The checked contents of a file, whatever machine its code is for.

        open_artifact("digits.zt").targets[0].spec.target
    """
    where = os.fspath(path)
    found = members(read_file(path), where)
    listed = manifest.parse(found[MANIFEST], where)
    _check_members(found, listed["files"], where)
    targets = tuple(_target(t, found) for t in listed["targets"])
    if not targets:
        raise listed["targets"].wrong("a list of at least one target")
    metadata = manifest.program_metadata(listed["program"])
    if training := listed["training"].optional():
        dict(training.items())  # its inside is checked by who understands it
    try:
        weights, _ = safetensors.unpack(found[WEIGHTS], f"{where}: {WEIGHTS}")
    except WeightsError as error:
        raise ArtifactError(str(error)) from None
    for t in targets:
        _check_states(t.spec, weights, where)
    return Artifact(where, listed["version"].value, listed["ztorch"].text(), metadata,
                    listed["training"].value, {n: len(d) for n, d in found.items()}, weights,
                    targets)


def read_artifact(path: str | os.PathLike[str]) -> Loaded:
    """Spec, code, params and metadata of a file, for this machine.

        spec, code, params, metadata = read_artifact("digits.zt")
        Executable(spec, code, params).bind("predict")
    """
    artifact = open_artifact(path)
    runs = next((t for t in artifact.targets if not t.refusal()), None)
    if runs is None:
        made = "; ".join(f"its code for {t.spec.where} {t.refusal()}"
                         for t in artifact.targets)
        raise DeviceError(f"{artifact.where} does not run on this machine "
                          f"({processor.architecture()}, {processor.cpu_name()}): {made}. Export "
                          "it again for a device that `ztorch devices` lists here")
    need = runs.spec.host_bytes
    if need > processor.memory_bytes():
        raise ArtifactError(f"{artifact.where} claims {need:,} bytes to run, more than the "
                            f"{processor.memory_bytes():,} of this machine; export it with a "
                            "smaller batch size")
    return Loaded(runs.spec, bytes(runs.code), artifact.params(runs),
                  {**artifact.metadata, "training": artifact.training})


def _check_members(found: dict[str, memoryview], files: Field, where: str) -> None:
    for name, entry in files.items():
        size = entry["size"].whole(0, MOST_BYTES)
        sha256 = entry["sha256"].text(_HASH, "a SHA-256 of 64 lower-case digits")
        check(found, name, size, sha256, where)
    extra = [n for n in found if n != MANIFEST and n not in files.value]
    if extra:
        raise ArtifactError(f"{where} has a member {extra[0]!r} that its manifest does not list; "
                            f"{AGAIN}")
    if WEIGHTS not in found:
        raise ArtifactError(f"{where} has no member {WEIGHTS!r}; {AGAIN}")


def _target(target: Field, found: dict[str, memoryview]) -> Compilation:
    spec = manifest.program_spec(target["spec"])
    constants = memoryview(b"")
    if name := target["constants"].optional():
        constants = _member(name, found)
    total = sum(size for _, size in spec.constants)
    if len(constants) != total:
        raise target["constants"].wrong(f"the name of a member of {total} bytes, as the spec says")
    code = _member(target["code"], found)
    names = bytes(code)
    for entry in target["spec"]["entries"]:
        _, at, size, _ = entry
        if at.value + size.value > len(names):
            raise size.wrong(f"a part of the {len(names)} bytes of {target['code'].value}")
    for function in target["spec"]["functions"] if spec.backend == "cpu" else ():
        symbol = function["symbol"]
        if b"\0%s\0" % symbol.value.encode() not in names:
            raise symbol.wrong(f"a symbol of {target['code'].value}")
    return Compilation(spec, code, constants)


def _member(name: Field, found: dict[str, memoryview]) -> memoryview:
    if name.text() not in found:
        raise name.wrong(f"the name of a member: {', '.join(found)}")
    return found[name.value]


def _check_states(spec: ProgramSpec, weights: safetensors.Tensors, where: str) -> None:
    kept = {name: s for name, s in spec.states.items() if not s.derived}
    for name, s in kept.items():
        if name not in weights:
            raise ArtifactError(f"{where}: {WEIGHTS} lacks the state {name!r}; {AGAIN}")
        d, array = weights[name]
        if d != s.dtype or array.shape != s.shape:
            raise ArtifactError(f"{where}: {WEIGHTS} holds {name!r} as {d} of shape {array.shape}, "
                                f"the manifest says {s.dtype} of shape {s.shape}; {AGAIN}")
    extra = [n for n in weights if n not in kept]
    if extra:
        raise ArtifactError(f"{where}: {WEIGHTS} holds {extra[0]!r}, which the manifest does not "
                            f"list; {AGAIN}")
