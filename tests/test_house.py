"""Holds the house to docs/rooms.md: which room imports which, and one door for each dependency."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.cases.grouping import together
from tests.cases.sources import statements, tree
from ztorch import dtypes

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ztorch"
SOURCES = sorted(p for p in PACKAGE.rglob("*.py"))
TABLE = (ROOT / "docs/rooms.md").read_text()


def _table() -> tuple[set[str], dict[str, set[str]]]:
    """The ground floor, and room -> rooms it may import, from the table of docs/rooms.md."""
    ground: set[str] = set()
    rooms: dict[str, set[str]] = {}
    for line in TABLE.splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            names = {n.removesuffix("/") for n in re.findall(r"`([\w/]+)`", cells[1])}
            below = {n.removesuffix("/") for n in re.findall(r"`([\w/]+)`", cells[3])}
            ground = ground or names
            rooms |= dict.fromkeys(names, below)
    assert {"ir", "compile"} <= set(rooms), "docs/rooms.md lost its table of rooms"
    return ground, rooms


GROUND, ROOMS = _table()


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _imports(path: Path) -> list[tuple[str, int]]:
    """(dotted name, line) of every import, in functions and for type hints too."""
    imports = []
    for node in statements(path):
        if isinstance(node, ast.Import):
            imports += [(a.name, node.lineno) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "ztorch":
                imports += [(f"ztorch.{a.name}", node.lineno) for a in node.names]
            else:
                imports.append((node.module, node.lineno))
    return imports


def test_imports_are_those_of_the_table() -> None:
    """And the table allows nothing that nobody imports."""
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in SOURCES:
        room = _room(path)
        if room.startswith("__"):
            continue
        assert room in ROOMS, f"{path} is in a room that docs/rooms.md does not name"
        for name, line in _imports(path):
            assert name != "ztorch", f"{path}:{line} imports the whole package"
            if name.startswith("ztorch."):
                other = name.split(".")[1]
                assert other in ROOMS, f"{path}:{line} imports {name}, which is in no room"
                used[room].add(other)
                assert other in ROOMS[room] | GROUND | {room}, f"{path}:{line} climbs from {room} to {other}"
    unused = {room: ROOMS[room] - used[room] for room in ROOMS if ROOMS[room] - used[room]}
    assert not unused, f"docs/rooms.md allows imports that nothing needs: {unused}"


def test_rooms_form_no_cycle() -> None:
    done: list[str] = []
    while len(done) < len(ROOMS):
        free = [r for r in ROOMS if r not in done and ROOMS[r] <= {*done, *GROUND}]
        assert free, f"these rooms of docs/rooms.md import one another: {set(ROOMS) - set(done)}"
        done += free


def _files_below() -> dict[Path, set[Path]]:
    """The files that each file names in its imports, in functions and for type hints too."""
    files = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
             for p in SOURCES}
    below: dict[Path, set[Path]] = {p: set() for p in SOURCES}
    for path in SOURCES:
        for node in statements(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{a.name}" for a in node.names]
                names = [n if n in files else node.module for n in inner]
            below[path] |= {files[n] for n in names if n in files} - {path}
    return below


def test_files_form_no_cycle() -> None:
    """Of two files one lies below the other: no import leads back, in a function or in a hint."""
    below = _files_below()
    assert sum(map(len, below.values())) > 1000
    while free := [p for p, others in below.items() if not others & below.keys()]:
        for path in free:
            del below[path]
    tied = {p.relative_to(PACKAGE).as_posix(): sorted(
        o.relative_to(PACKAGE).as_posix() for o in others & below.keys())
        for p, others in below.items()}
    assert not tied, f"these files import one another, or files that do: {tied}"


DOORS = {
    "jinja2": {"codegen/templates.py"},
    "llvmlite": {"codegen/llvm.py"},
    "subprocess": {"codegen/llvm_child.py", "codegen/cc.py", "codegen/nvidia_programs.py", "codegen/wasm.py", "commands/demo.py"},
    "click": {"cli.py", "commands"},
    "ctypes": {"backends", "host/mac.py", "host/memory.py", "runtime/host_program.py", "runtime/native_call.py"},
    "vulkan": {"backends/vulkan_devices.py"},
    "pyopencl": {"backends/drivers/opencl.py"},
    "wgpu": {"backends/drivers/webgpu.py"},
    "Metal": {"backends/drivers/metal.py"},
    "objc": {"backends/drivers/metal.py"},
    "cuda": {"backends/cuda_calls.py", "codegen/ptx.py", "codegen/nvrtc.py"},
    "ml_dtypes": {"arrays/exchange.py"},
    "h5py": {"weights/keras_files.py"},
    "PIL": {"data/images.py"},
    "tensorboard": {"callbacks/tensorboard.py"},
    "onnx": {"interchange/onnx/protobuf.py"},
    "matplotlib": {"files/figures.py"},
    "numpy": {""},
}
OURS = {"ztorch", "typing_extensions"}  # typing_extensions: for type checkers only


MOST_KEYS = 4  # dtypes that one table names: those of matrix instructions


@together()
@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_dependency_has_one_door(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    for name, line in _imports(path):
        top = name.split(".")[0]
        doors = DOORS.get(top)
        assert doors or top in sys.stdlib_module_names or top in OURS, f"{here}:{line}: {top} has no door"
        assert doors is None or any(not d or here == d or here.startswith(f"{d}/") for d in doors), (
            f"{here}:{line} imports {name}, whose door is {doors}")
    if here != "host/settings.py":
        assert "os.environ" not in path.read_text(), f"{here} reads the environment by itself"


def test_no_file_is_long() -> None:
    """A file with more lines has two subjects, or is a room."""
    files = [p for folder in ("ztorch", "tests", "tools", "benchmarks", "models", "examples")
             for p in (ROOT / folder).rglob("*.py")]
    lines = {p.relative_to(ROOT).as_posix(): p.read_text().count("\n") for p in files}
    assert {name: n for name, n in lines.items() if n > 300} == {}


def test_no_file_has_a_vague_name() -> None:
    for path in SOURCES:
        assert path.stem not in {"utils", "helpers", "common", "core_utils", "manager", "misc"}
        assert path.stem != "models", "models/ is the zoo"


def test_the_package_list_is_complete() -> None:
    listed = set(re.findall(r'"(ztorch(?:\.\w+)*)"',
                            (ROOT / "pyproject.toml").read_text().split("packages = [")[1]
                            .split("]")[0]))
    folders = {".".join(("ztorch", *p.parent.relative_to(PACKAGE).parts))
               for p in PACKAGE.rglob("__init__.py")}
    assert listed == folders | {"ztorch.templates", "ztorch.models", "ztorch.models.kernels"}
    assert all((p / "__init__.py").exists() for p in PACKAGE.rglob("*")
               if p.is_dir() and list(p.glob("*.py")))


def test_templates_hold_all_target_text() -> None:
    """Python builds no target text: no LLVM or C keywords in string literals outside templates."""
    target = re.compile(r"\b(getelementptr|insertelement|br label|alloca|#include)\b")
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not target.search(node.value), f"{path} holds target text: {node.value!r}"


def test_dtypes_are_named_only_in_their_rows() -> None:
    """A table of dtypes elsewhere would lack the next one, and nothing would say so."""
    names = {name for d in dtypes.ALL for name in (d.name, d.long)}
    for path in (ROOT / "templates").rglob("*.j2"):
        keys = set(re.findall(r"'(\w+)': ", path.read_text())) & names
        assert len(keys) <= MOST_KEYS, f"{path} has a table of {sorted(keys)}"
    for path in SOURCES:
        for node in ast.walk(tree(path)) if path != PACKAGE / "dtypes.py" else ():
            if isinstance(node, ast.Dict):
                sides = [{n for x in side if (n := getattr(x, "value", getattr(x, "id", None))) in names}
                         for side in (node.keys, node.values)]
                assert max(map(len, sides)) <= MOST_KEYS, f"{path}:{node.lineno} is a table of dtypes"


def test_no_code_compares_target_names() -> None:
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


def test_the_readme_has_the_test_command() -> None:
    """Its command installs and runs the same as `.ci/run`."""
    commands = re.search(r"pip install -e \"(\.\[[\w,]+\])\" && (python -m pytest.*)",
                         (ROOT / "README.md").read_text())
    run = (ROOT / ".ci" / "run").read_text()
    assert commands and f'-e "{commands[1]}"' in run and f"\n{commands[2]}\n" in run


# -- tests -------------------------------------------------------------------------------------------

TESTS = sorted((ROOT / "tests").rglob("*.py"))
# Folders of tests that are not rooms of the package: what tests share, players of machines, and what lies
# beside the package.
BESIDE = {"cases", "machines", "zoo", "tools", "__pycache__"}


def test_no_test_imports_another() -> None:
    """Code that two tests share is in tests/cases, or in a file beside them that is not a test."""
    for path in TESTS:
        for node in statements(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            wrong = [n for n in names if n.startswith("tests.") and "test_" in (n.split(".")[-1][:5], n.split(".")[-2][:5])]
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong[0]}"


def test_tests_mirror_the_rooms() -> None:
    folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir()}
    assert folders - BESIDE <= set(ROOMS)
    assert all((p.parent / "__init__.py").exists() for p in TESTS)


# -- names -------------------------------------------------------------------------------------------

# Keras has two members of the first names: an initializer and a layer, a loss and a metric. Users' kernels
# are a layer of this name, and the compiler's are the IR's.
TWICE = {"Identity", "CosineSimilarity", "Kernel"}
# Names that do not describe their value.
SAYING_NOTHING = {"found", "given", "here", "kept", "there", "those", "wanted", "what", "which"}


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in statements(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(path.relative_to(PACKAGE).as_posix())
    twice = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert {n: f for n, f in twice.items() if n not in TWICE} == {}


def test_no_name_with_an_underscore_is_imported() -> None:
    borrowed = set()
    for path in (*SOURCES, *TESTS):
        for node in statements(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("ztorch.", "tests.")):
                borrowed |= {f"{node.module}.{a.name}" for a in node.names
                             if a.name.startswith("_") and not a.name.startswith("__")}
    assert not borrowed, f"these are for their own file alone: {borrowed}"


def test_variable_names_are_nouns() -> None:
    for path in SOURCES:
        for node in statements(path):
            if isinstance(node, ast.FunctionDef):
                bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                bound |= {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                assert not bound & SAYING_NOTHING, f"{path}: {node.name} binds {bound & SAYING_NOTHING}"


def test_a_constant_has_a_comment() -> None:
    """Beside it, or above the constants that it stands with."""
    bare = re.compile(r"_?[A-Z][A-Z0-9_]* = \(?\d[\d.\sex()<>*/+-]*$")
    named = re.compile(r"_?[A-Z][A-Z0-9_, ]* = ")
    for path in SOURCES:
        lines = ["", *path.read_text().splitlines()]
        for k, line in enumerate(lines):
            above = next(a for a in reversed(lines[:k + 1]) if not named.match(a))
            assert not bare.match(line) or above.startswith("#"), f"{path}:{k}: what is {line}?"
