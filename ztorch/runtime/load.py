"""Reads an artifact. Every hash, size and bound is checked before anything is used.

This needs no compiler. The checks find damage and files that are not artifacts. They do not make
code harmless: like any program, an artifact runs with the rights of its user.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from ztorch.abi import WASM_ARCH
from ztorch.errors import ArtifactError, DeviceError, WeightsError
from ztorch.files import safetensors
from ztorch.files.container import AGAIN, MANIFEST, check, members, read_file
from ztorch.files.kinds import BadValue
from ztorch.host import processor
from ztorch.host.memory import aligned
from ztorch.runtime import manifest
from ztorch.runtime.manifest import Manifest, TargetEntry
from ztorch.runtime.snapshot import Snapshot
from ztorch.runtime.spec import CALL, ProgramSpec

WEIGHTS = "weights.safetensors"  # the member that holds the states


class Compilation(NamedTuple):
    """The program compiled for one target."""

    spec: ProgramSpec
    code: memoryview
    constants: memoryview

    def refusal(self) -> str:
        """The reason why this machine cannot run it; empty if it can."""
        if self.spec.backend != "cpu":
            from ztorch.runtime.devices import device_refusal

            return device_refusal(self.spec)
        if self.spec.arch != processor.architecture():
            return f"is for {self.spec.arch} processors"
        missing = sorted(set(self.spec.needs) - processor.features())
        return f"needs {', '.join(missing)}" if missing else ""


class Artifact(NamedTuple):
    """The checked contents of a file. Its code may be for another machine."""

    where: str  # the path of the file
    manifest: Manifest
    sizes: dict[str, int]  # bytes of each member
    weights: safetensors.Tensors  # all stored states
    targets: tuple[Compilation, ...]

    def params(self, target: Compilation) -> np.ndarray:
        """A block with states and constants at their offsets, which an Executable may adopt."""
        block = aligned(target.spec.params_bytes)
        for s in target.spec.states.values():
            if not s.derived:
                s.write(block, self.weights[s.name][1])
        start = 0
        for offset, size in target.spec.constants:
            block[offset:offset + size] = np.frombuffer(target.constants, np.uint8, size, start)
            start += size
        return block


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """The checked contents of a file, for any machine.

        open_artifact("digits.zt").targets[0].spec.target
    """
    where = os.fspath(path)
    contents = members(read_file(path), where)
    index = manifest.parse(contents[MANIFEST], where)
    _check_members(contents, index, where)
    compilations = []
    for k, target in enumerate(index.targets):
        try:
            compilations.append(_compilation(target, contents))
        except BadValue as error:
            raise manifest.wrong(error.inside("targets", k), where) from None
    try:
        weights, _ = safetensors.unpack(contents[WEIGHTS], f"{where}: {WEIGHTS}")
    except WeightsError as error:
        raise ArtifactError(str(error)) from None
    for compilation in compilations:
        _check_states(compilation.spec, weights, where)
    return Artifact(where, index, {name: len(data) for name, data in contents.items()}, weights,
                    tuple(compilations))


def read_artifact(path: str | os.PathLike[str]) -> Snapshot:
    """The program in a file, compiled for this machine.

        spec, code, params, metadata, training = read_artifact("digits.zt")
        Executable(spec, code, params).bind("predict")
    """
    artifact = open_artifact(path)
    target = next((t for t in artifact.targets if not t.refusal()), None)
    if target is None:
        reasons = "; ".join(f"its code for {t.spec.where} {t.refusal()}" for t in artifact.targets)
        raise DeviceError(f"{artifact.where} does not run on this machine "
                          f"({processor.architecture()}, {processor.cpu_name()}): {reasons}. "
                          "Export it again for a device that `ztorch devices` lists here: "
                          f"ztorch export {_source_of(artifact)} -o FILE.zt")
    need = target.spec.host_bytes
    if need > processor.memory_bytes():
        raise ArtifactError(f"{artifact.where} claims {need:,} bytes to run, more than the "
                            f"{processor.memory_bytes():,} of this machine; export it with a "
                            "smaller batch size")
    return Snapshot(target.spec, bytes(target.code), artifact.params(target),
                    artifact.manifest.program, artifact.manifest.training)


def _source_of(artifact: Artifact) -> str:
    """What a shell exports again: the artifact of a model, but the source of a function."""
    return "FILE.py:NAME" if CALL in artifact.targets[0].spec.functions else artifact.where


def _check_members(contents: dict[str, memoryview], index: Manifest, where: str) -> None:
    """Checks that the members are those of the manifest, with their sizes and hashes."""
    for name, member in index.files.items():
        check(contents, name, member.size, member.sha256, where)
    for name in contents:
        if name != MANIFEST and name not in index.files:
            raise ArtifactError(f"{where} has a member {name!r} that its manifest does not list; "
                                f"{AGAIN}")
    if WEIGHTS not in contents:
        raise ArtifactError(f"{where} has no member {WEIGHTS!r}; {AGAIN}")


def _compilation(target: TargetEntry, contents: dict[str, memoryview]) -> Compilation:
    """A target with its code and constants; an error if they do not agree with its spec."""
    spec = target.spec
    constants = memoryview(b"")
    if target.constants is not None:
        constants = _member(target.constants, "constants", contents)
    total = sum(size for _, size in spec.constants)
    if len(constants) != total:
        raise BadValue(target.constants, f"the name of a member of {total} bytes, as the spec says",
                       "constants")
    code = _member(target.code, "code", contents)
    for k, (_, offset, size, _) in enumerate(spec.entries):
        if offset + size > len(code):
            raise BadValue(size, f"a part of the {len(code)} bytes of {target.code}",
                           "spec", "entries", k, 2)
    if spec.backend == "cpu":
        names = bytes(code)
        for k, f in enumerate(spec.functions.values()):
            if _symbol_bytes(f.symbol, spec.arch) not in names:
                raise BadValue(f.symbol, f"a symbol of {target.code}",
                               "spec", "functions", k, "symbol")
    return Compilation(spec, code, constants)


def _symbol_bytes(symbol: str, arch: str) -> bytes:
    """A symbol as it occurs in code: between zero bytes, or in WebAssembly after the last byte of
    its length."""
    length = len(symbol)
    before = (length if length < 0x80 else length >> 7) if arch == WASM_ARCH else 0
    return b"%c%s\0" % (before, symbol.encode())


def _member(name: str, key: str, contents: dict[str, memoryview]) -> memoryview:
    if name not in contents:
        raise BadValue(name, f"the name of a member: {', '.join(contents)}", key)
    return contents[name]


def _check_states(spec: ProgramSpec, weights: safetensors.Tensors, where: str) -> None:
    """Checks that the weights are the stored states of the spec, with their dtypes and shapes."""
    stored = {name: s for name, s in spec.states.items() if not s.derived}
    for name, s in stored.items():
        if name not in weights:
            raise ArtifactError(f"{where}: {WEIGHTS} lacks the state {name!r}; {AGAIN}")
        d, array = weights[name]
        if d != s.dtype or array.shape != s.shape:
            raise ArtifactError(f"{where}: {WEIGHTS} holds {name!r} as {d} of shape {array.shape}, "
                                f"the manifest says {s.dtype} of shape {s.shape}; {AGAIN}")
    for name in weights:
        if name not in stored:
            raise ArtifactError(f"{where}: {WEIGHTS} holds {name!r}, which the manifest does not "
                                f"list; {AGAIN}")
