"""Writes a compiled model for browsers: a page, a script and the artifact.

The script is the whole runtime and reads any artifact for WebGPU: a site needs the script and the
`.zt` alone. The page is for trying the model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ztorch.abi import PORT_ALIGN
from ztorch.artifact.c_interface import LONGEST, identifier
from ztorch.artifact.write import pack
from ztorch.codegen.templates import environment
from ztorch.errors import ConfigError, Unsupported
from ztorch.files.atomic import write_atomic
from ztorch.runtime.manifest import FORMAT, OLDEST, VERSION
from ztorch.runtime.snapshot import Snapshot
from ztorch.version import __version__

BACKEND = "webgpu"


def write_web(path: str | os.PathLike[str], snapshot: Snapshot) -> list[Path]:
    """Writes all files to a folder, each in one atomic step, and returns their paths. The page
    comes last, since it needs the others.

        write_web("page", program.snapshot())
        # page/digits.zt, page/ztorch.js, page/index.html
    """
    spec = snapshot.spec
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder for the page")
    if spec.backend != BACKEND:
        raise Unsupported(f"a page runs on WebGPU, and {spec.name} is compiled for {spec.where}; "
                          f"export it for the device {BACKEND}")
    artifact = f"{identifier(spec.name[:LONGEST])}.zt"
    files = {artifact: pack(snapshot),
             "ztorch.js": _rendered("ztorch.js", version=__version__, format=FORMAT,
                                    oldest=OLDEST, newest=VERSION, port_align=PORT_ALIGN),
             "index.html": _rendered("index.html", name=spec.name, file=artifact)}
    for name, data in files.items():
        write_atomic(folder / name, data)
    return [folder / name for name in files]


def _rendered(file: str, /, **values: Any) -> bytes:
    return environment().get_template(f"web/{file}.j2").render(**values).encode()
