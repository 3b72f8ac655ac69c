"""Writes a compiled model as a product for browsers: a page, a script and the artifact.

The script is the whole runtime and reads any artifact for WebGPU, so a site of one's own needs it
and the `.zt` alone; the page is there to try the model on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.abi import PORT_ALIGN
from ztorch.artifact.c_interface import LONGEST, identifier
from ztorch.artifact.write import pack
from ztorch.codegen.render import environment
from ztorch.errors import ConfigError, Unsupported
from ztorch.files.atomic import write_atomic
from ztorch.runtime.manifest import FORMAT, VERSION
from ztorch.runtime.spec import ProgramSpec
from ztorch.version import __version__

BACKEND = "webgpu"


def write_web(path: str | os.PathLike[str], spec: ProgramSpec, code: bytes, params: np.ndarray,
              metadata: Mapping[str, Any]) -> list[Path]:
    """Writes all files to the folder, each in one atomic step, and says which; the page last, since
    it needs the others.

        c = compile_functions(traced.functions, TARGETS["webgpu"], "digits")
        write_web("page", c.spec, c.code, c.params, traced.metadata)
        # page/digits.zt, page/ztorch.js, page/index.html
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give the folder that the page shall lie in")
    if spec.backend != BACKEND:
        raise Unsupported(f"a page runs on WebGPU, and {spec.name} is compiled for {spec.where}; "
                          f"export it for the device {BACKEND}")
    artifact = f"{identifier(spec.name[:LONGEST])}.zt"
    files = {artifact: pack(spec, code, params, metadata),
             "ztorch.js": _rendered("ztorch.js", version=__version__, format=FORMAT,
                                    version_of_format=VERSION, place=PORT_ALIGN),
             "index.html": _rendered("index.html", name=spec.name, file=artifact)}
    for name, data in files.items():
        write_atomic(folder / name, data)
    return [folder / name for name in files]


def _rendered(file: str, /, **given: Any) -> bytes:
    return environment().get_template(f"web/{file}.j2").render(**given).encode()
