"""Writes a compiled program to one .zt file, from which it runs, and trains on, anywhere.

    manifest.json         a description of the program, and size and hash of every other member
    weights.safetensors   every state by name: weights, optimizer slots, counters, random state
    code/TARGET.so        the library that compiling in memory runs too; .bin for a device, .wasm
                          for browsers
    constants/TARGET.bin  numbers the compiler worked out, if there are any

Nothing in it is pickled or compressed, and equal programs give equal bytes.
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
    """Writes a compiled program, which may be for another machine than this one, with everything
    its next step depends on; whole or not at all.

        write_artifact("digits.zt", program.snapshot())
    """
    need_name(path, "an artifact", ".zt", "name it .zt. Weights for others are written by "
              "model.save_weights(path), and ONNX by model.export(path)")
    write_atomic(path, pack(snapshot))


def pack(snapshot: Snapshot, *others: Snapshot) -> bytes:
    """The bytes of an artifact; `others` are the same program, compiled for other targets."""
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
    """The bytes of a zip that stores its members as they are; `seal` is its comment."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            archive.comment = seal.encode()
            for name, data in files.items():
                info = zipfile.ZipInfo(name, DATE)
                info.create_system = UNIX  # else it would tell where it was written
                info.external_attr = RIGHTS
                archive.writestr(info, data)
    except zipfile.LargeZipFile:
        raise ArtifactError("the program has more than 4 GiB of weights, which an artifact cannot "
                            "hold; save_weights() can") from None
    return out.getvalue()
