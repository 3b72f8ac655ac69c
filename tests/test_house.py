"""Holds the house to ARCHITECTURE.md: who may import whom, and one door for each dependency."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ztorch"
SOURCES = sorted(p for p in PACKAGE.rglob("*.py"))
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def _floors() -> dict[str, set[str]]:
    """room -> rooms it may import, read from the table of ARCHITECTURE.md."""
    floors: dict[str, set[str]] = {}
    for line in ARCHITECTURE.splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            names = re.findall(r"`([\w/.]+)`", cells[1])
            below = set(re.findall(r"`([\w/.]+)`", cells[3]))
            for name in names:
                floors[name.removesuffix("/").removesuffix(".py")] = {
                    b.removesuffix("/").removesuffix(".py") for b in below}
    assert "ir" in floors and "compile" in floors, "ARCHITECTURE.md lost its table of rooms"
    return floors


FLOORS = _floors()
BASE = {"errors", "arguments", "dtypes", "settings", "choices", "assets", "config", "tensorfile", "c_compiler",
        "machines"}


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def _allowed(room: str) -> set[str]:
    """Everything a room may import, "below" meaning whatever those rooms may import as well."""
    seen: set[str] = set()
    stack = list(FLOORS[room])
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            if name.endswith("+"):
                continue
            stack.extend(FLOORS.get(name, ()))
    return seen | BASE | {room}


def _imports(path: Path) -> list[tuple[str, int, bool]]:
    """(dotted name, line, at type-checking time only) of every import."""
    tree = ast.parse(path.read_text())
    lazy: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            lazy |= {child.lineno for child in ast.walk(node) if hasattr(child, "lineno")}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(a.name, node.lineno, node.lineno in lazy) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "ztorch":
                found += [(f"ztorch.{a.name}", node.lineno, node.lineno in lazy)
                          for a in node.names]
            else:
                found.append((node.module, node.lineno, node.lineno in lazy))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path: Path) -> None:
    room = _room(path)
    if room in ("__init__", "__main__"):
        return
    assert room in FLOORS, f"{path} lies in a room that ARCHITECTURE.md does not name"
    for name, line, typing_only in _imports(path):
        parts = name.split(".")
        if parts[0] == "ztorch" and len(parts) > 1 and not typing_only:
            other = parts[1]
            if other.startswith("__"):
                continue
            assert other in _allowed(room), f"{path}:{line} climbs from {room} to {other}"


DOORS = {
    "jinja2": {"codegen/render.py"},
    "llvmlite": {"codegen/assemble.py"},
    "subprocess": {"codegen/assemble.py", "codegen/cc.py", "commands/train.py"},
    "click": {"cli.py", "commands"},
    "ctypes": {"backends", "runtime/executable.py"},
    "vulkan": {"backends/vulkan_devices.py"},
    "Metal": {"backends/drivers/metal.py"},
    "objc": {"backends/drivers/metal.py"},
    "cuda": {"backends/cuda_calls.py", "codegen/ptx.py"},
    "h5py": {"weight_files/keras_files.py"},
    "PIL": {"data/images.py"},
    "onnx": {"interchange/onnx/protobuf.py"},
    "matplotlib": {"training/history.py", "picture.py"},
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_dependency_has_one_door(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    for name, line, _ in _imports(path):
        doors = DOORS.get(name.split(".")[0])
        assert doors is None or any(here == d or here.startswith(f"{d}/") for d in doors), (
            f"{here}:{line} imports {name}, whose door is {doors}")
    if here != "settings.py":
        assert "os.environ" not in path.read_text(), f"{here} reads the environment by itself"


def test_no_file_is_named_for_what_has_no_name() -> None:
    for path in SOURCES:
        assert path.stem not in {"utils", "helpers", "common", "core_utils", "manager", "misc"}


def test_the_package_list_is_complete() -> None:
    listed = set(re.findall(r'"(ztorch(?:\.\w+)*)"',
                            (ROOT / "pyproject.toml").read_text().split("packages = [")[1]
                            .split("]")[0]))
    folders = {".".join(("ztorch", *p.parent.relative_to(PACKAGE).parts))
               for p in PACKAGE.rglob("__init__.py")}
    assert listed == folders | {"ztorch.templates", "ztorch.models"}
    assert all((p / "__init__.py").exists() for p in PACKAGE.rglob("*")
               if p.is_dir() and list(p.glob("*.py")))


def test_templates_hold_all_target_text() -> None:
    """Python builds no target text: no LLVM or C keywords in string literals outside templates."""
    target = re.compile(r"\b(getelementptr|insertelement|br label|alloca|#include)\b")
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not target.search(node.value), f"{path} holds target text: {node.value!r}"


def test_no_code_asks_for_a_target_by_name() -> None:
    names = r"(avx512|avx2|sse4\.1|neon|scalar)"
    asks = re.compile(rf"""[!=]=\s*["']{names}["']""")
    for path in SOURCES:
        assert not asks.search(path.read_text()), f"{path} treats one target apart"


def test_extras_that_errors_advise_exist() -> None:
    """pip only warns of an extra that it does not know, so the advice would lead nowhere."""
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    there = set(re.findall(r"^([a-z0-9]+) = \[", section.partition("\n[")[0], re.MULTILINE))
    advised = {(extra, path.name) for path in SOURCES
               for extra in re.findall(r"ztorch\[([a-z0-9]+)\]", path.read_text())}
    assert len(advised) > 5
    assert {a for a in advised if a[0] not in there} == set()


def test_the_readme_says_what_is_run_to_test() -> None:
    """Its command installs and runs what `.ci/run` does."""
    said = re.search(r"pip install -e \"(\.\[[\w,]+\])\" && (python -m pytest.*)",
                     (ROOT / "README.md").read_text())
    run = (ROOT / ".ci" / "run").read_text()
    assert said and f'-e "{said[1]}"' in run and f"\n{said[2]}\n" in run
