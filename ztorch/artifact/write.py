"""Writes a compiled program to one .zt file, from which it runs, and trains on, anywhere.

    manifest.json         what the program is, and size and hash of every other member
    weights.safetensors   every state by name: weights, optimizer slots, counters, random state
    code/TARGET.so        the library that compiling in memory runs too
    constants/TARGET.bin  numbers the compiler worked out, if it did

Nothing in it is pickled or compressed, and equal programs give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.errors import ArtifactError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name, write_atomic
from ztorch.files.container import DATE, MANIFEST, RIGHTS, UNIX
from ztorch.runtime.manifest import FORMAT, VERSION
from ztorch.runtime.spec import ProgramSpec
from ztorch.version import __version__


def write_artifact(path: str | os.PathLike[str], spec: ProgramSpec, code: bytes,
                   params: np.ndarray, metadata: Mapping[str, Any]) -> None:
    """Writes a compiled program, which may be for another machine than this one, with all that its
    next step depends on; whole or not at all.

        c = compile_functions(traced.functions, TARGETS["avx2"], "digits")
        write_artifact("digits.zt", c.spec, c.code, c.params, traced.metadata)
    """
    need_name(path, "an artifact", ".zt", "name it .zt. Weights for others are written by "
              "model.save_weights(path), and ONNX by zt.onnx.save(model, path), after "
              "model.set_weights(program.get_weights())")
    write_atomic(path, pack(spec, code, params, metadata))


def pack(spec: ProgramSpec, code: bytes, params: np.ndarray, metadata: Mapping[str, Any]) -> bytes:
    """The bytes of an artifact."""
    name = spec.target.replace(":", "-")
    held = f"code/{name}.{'so' if spec.backend == 'cpu' else 'bin'}"
    files = {"weights.safetensors": _weights(spec, params), held: code}
    target: dict[str, Any] = {"spec": spec.to_json(), "code": held, "constants": None}
    if spec.constants:
        target["constants"] = f"constants/{name}.bin"
        files[target["constants"]] = b"".join(
            params[at:at + size].tobytes() for at, size in spec.constants)
    program = {k: v for k, v in metadata.items() if k != "training"}
    manifest = {
        "format": FORMAT, "version": VERSION, "ztorch": __version__,
        "files": {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                  for name, data in files.items()},
        "targets": [target], "program": program,
        "training": _plain(metadata.get("training")),
    }
    text = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
    return _zip({MANIFEST: text, **files}, hashlib.sha256(text).hexdigest())


def _weights(spec: ProgramSpec, params: np.ndarray) -> bytes:
    tensors = {}
    for s in spec.states.values():
        if s.derived:  # made again when the program is loaded
            continue
        stored = params[s.offset:s.offset + s.nbytes]
        tensors[s.name] = s.dtype, stored.view(s.dtype.numpy).reshape(s.shape)
    return safetensors.pack(tensors, {"format": "ztorch artifact", "model": spec.name})


def _plain(x: Any) -> Any:
    """Infinite and NaN scores of a history as texts, which float() reads: JSON has no such
    numbers."""
    if isinstance(x, float) and not math.isfinite(x):
        return repr(x)
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, list) else x


def _zip(files: Mapping[str, bytes], seal: str) -> bytes:
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
