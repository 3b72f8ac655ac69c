"""Looks into a built wheel and sdist: all that runs is in, and nothing that does not.

    python tools/packages.py dist

Needs no ztorch: it compares the archives with the files of this checkout.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Folder of the checkout -> folder of the wheel, with the endings that are shipped.
SHIPPED = {"ztorch": ("ztorch", (".py", ".npz", ".md", ".typed", ".json")),
           "templates": ("ztorch/templates", (".py", ".j2")),
           "models": ("ztorch/models", (".py", ".safetensors"))}
NOT_SHIPPED = ("tests", "tools", "benchmarks", "examples", "docs")


def wanted() -> set[str]:
    """The files that a wheel must hold.

    >>> {"ztorch/cli.py", "ztorch/models/lenet.py", "ztorch/data/digits.npz"} <= wanted()
    True
    """
    return {f"{to}/{path.relative_to(ROOT / folder).as_posix()}"
            for folder, (to, endings) in SHIPPED.items() for path in (ROOT / folder).rglob("*")
            if path.suffix in endings and "__pycache__" not in path.parts}


def wheel_faults(names: set[str]) -> list[str]:
    """The faults in the files of a wheel.

    >>> wheel_faults({*wanted(), "ztorch-0.dist-info/RECORD"})
    []
    >>> wheel_faults({*wanted(), "tests/test_x.py"} - {"ztorch/cli.py"})
    ['the wheel lacks ztorch/cli.py', 'the wheel holds tests/test_x.py']
    """
    extra = {n for n in names - wanted() if ".dist-info/" not in n
             and not n.startswith("ztorch/codegen/grammar/")}
    return [*(f"the wheel lacks {n}" for n in sorted(wanted() - names)),
            *(f"the wheel holds {n}" for n in sorted(extra))]


def sdist_faults(names: set[str]) -> list[str]:
    """The faults in the files of a sdist, whose names lack its own folder."""
    folders = {n.split("/")[0] for n in names}
    return [*(f"the sdist lacks {f}" for f in ("ztorch", "templates", "models", "cli.py",
                                               "pyproject.toml", "README.md", "LICENSE")
              if f not in folders),
            *(f"the sdist holds {f}" for f in NOT_SHIPPED if f in folders)]


def main(folder: str) -> None:
    [wheel], [sdist] = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        faults = wheel_faults(set(archive.namelist()))
        print(f"{wheel.name}: {len(archive.namelist())} files, {wheel.stat().st_size:,} bytes")
    with tarfile.open(sdist) as tar:
        faults += sdist_faults({n.partition("/")[2] for n in tar.getnames() if "/" in n})
        print(f"{sdist.name}: {sdist.stat().st_size:,} bytes")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main(sys.argv[1])
