"""Writes a compiled model for browsers: a page, a script and the artifact.

The script is the whole runtime, and reads any artifact for the web: a site needs only the script
and the `.zt`. The page is for trying the model. It includes the script and the artifact, so that it
opens from a file, too.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ztorch.abi import PORT_ALIGN
from ztorch.artifact.c_interface import LONGEST, identifier
from ztorch.artifact.web_samples import Samples
from ztorch.artifact.write import pack
from ztorch.codegen.templates import environment
from ztorch.errors import ConfigError, Unsupported
from ztorch.files.atomic import write_atomic
from ztorch.runtime.manifest import FORMAT, OLDEST, VERSION
from ztorch.runtime.snapshot import Snapshot
from ztorch.runtime.spec import RESULTS, SUMS
from ztorch.version import __version__

BACKEND = "webgpu"
SCRIPT = {  # values of the script's template
    "version": __version__, "format": FORMAT, "oldest": OLDEST, "newest": VERSION,
    "port_align": PORT_ALIGN, "results": RESULTS, "sums": SUMS}


@dataclass(frozen=True)
class PageData:
    """The data of a page in addition to its model."""

    samples: Samples | None = None  # rows to try the model on
    letters: str = ""  # of a model of characters: the character of each number
    lacks: str = ""  # why there is no WebAssembly code; empty: there is


def write_web(path: str | os.PathLike[str], snapshot: Snapshot, *others: Snapshot,
              page: PageData | None = None) -> list[Path]:
    """Writes all files to a folder, each in one atomic step, and returns their paths.

        write_web("page", program.snapshot())
        # page/digits.zt, page/ztorch.js, page/index.html
    """
    spec = snapshot.spec
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; pass a folder for the page")
    if spec.backend != BACKEND:
        raise Unsupported(f"a page runs on WebGPU, and {spec.name} is compiled for {spec.where}; "
                          f"export it for the device {BACKEND}")
    artifact = pack(snapshot, *others)
    files = {f"{identifier(spec.name[:LONGEST])}.zt": artifact,
             "ztorch.js": _rendered("ztorch.js", **SCRIPT),
             "index.html": _page(spec.name, artifact, page or PageData())}
    for name, data in files.items():
        write_atomic(folder / name, data)
    return [folder / name for name in files]


def _page(name: str, artifact: bytes, page: PageData) -> bytes:
    """The page with everything that it needs. Large parts are gzipped; browsers unpack them."""
    samples = page.samples.to_json() if page.samples else None
    data = {"samples": samples, "letters": page.letters, "lacks": page.lacks}
    return _rendered("index.html", name=name, artifact=_inline(artifact),
                     data=_inline(json.dumps(data).encode()), **SCRIPT)


def _inline(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _rendered(file: str, /, **values: Any) -> bytes:
    return environment().get_template(f"web/{file}.j2").render(**values).encode()
