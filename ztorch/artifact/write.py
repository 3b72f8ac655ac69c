"""Writes a compiled program to a .zt file, which runs, and continues training, on any machine.

    manifest.json         a description of the program, and the size and hash of every other member
    weights.safetensors   every state by name: weights, optimizer slots, counters, random state
    code/TARGET.so        the same library that runs in memory; .bin for a device, .wasm for
                          browsers
    constants/TARGET.bin  numbers that the compiler computed, if there are any

Nothing is pickled or compressed, and equal programs have equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping

from ztorch.abi import WASM_ARCH
from ztorch.errors import ArtifactError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name, write_atomic
from ztorch.files.container import DATE, MANIFEST, RIGHTS, UNIX
from ztorch.runtime.load import WEIGHTS
from ztorch.runtime.manifest import FORMAT, VERSION, Manifest, MemberEntry, TargetEntry
from ztorch.runtime.snapshot import Snapshot
from ztorch.runtime.spec import ProgramSpec
from ztorch.version import __version__


def write_artifact(path: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Writes a compiled program, atomically, with all state that its next step depends on.

    It may be compiled for another machine.

        write_artifact("digits.zt", program.snapshot())
    """
    need_name(path, "an artifact", ".zt", "name it .zt. A model "
              "also writes .keras; save_weights(path) writes weights alone, and export(path) "
              "ONNX, C or a web page")
    write_atomic(path, pack(snapshot))


def pack(snapshot: Snapshot, *others: Snapshot) -> bytes:
    """The bytes of an artifact. `others`: the same program for other targets."""
    spec, _, _, metadata, training = snapshot
    files = {WEIGHTS: safetensors.pack(snapshot.states(), {"format": FORMAT, "model": spec.name})}
    targets = []
    for compiled in (snapshot, *others):
        name = compiled.spec.target.replace(":", "-")
        code = f"code/{name}.{_suffix(compiled.spec)}"
        constants = f"constants/{name}.bin" if compiled.spec.constants else None
        files[code] = compiled.code
        if constants:
            files[constants] = b"".join(compiled.params[offset:offset + size].tobytes()
                                        for offset, size in compiled.spec.constants)
        targets.append(TargetEntry(compiled.spec, code, constants))
    manifest = Manifest(
        FORMAT, VERSION, __version__,
        {name: MemberEntry(len(data), hashlib.sha256(data).hexdigest())
         for name, data in files.items()},
        tuple(targets), metadata, training)
    text = json.dumps(manifest.to_json(), separators=(",", ":"), allow_nan=False).encode()
    return stored_zip({MANIFEST: text, **files}, hashlib.sha256(text).hexdigest())


def _suffix(spec: ProgramSpec) -> str:
    """The suffix of a member of code."""
    return "wasm" if spec.arch == WASM_ARCH else "so" if spec.backend == "cpu" else "bin"


def stored_zip(files: Mapping[str, bytes], seal: str) -> bytes:
    """The bytes of a zip with uncompressed members. `seal`: its comment."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            archive.comment = seal.encode()
            for name, data in files.items():
                info = zipfile.ZipInfo(name, DATE)
                info.create_system = UNIX  # the same on every system
                info.external_attr = RIGHTS
                archive.writestr(info, data)
    except zipfile.LargeZipFile:
        raise ArtifactError("the program has more than 4 GiB of weights, the most that an artifact "
                            "holds; use save_weights()") from None
    return out.getvalue()
