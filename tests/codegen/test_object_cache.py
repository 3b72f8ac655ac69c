"""Code that is kept: found again by another process, never for another key, never when damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases.object_files import empty_cache, files, never
from tests.parity import HERE
from ztorch.codegen import assemble, cc, object_cache
from ztorch.codegen import llvm as llvm_source
from ztorch.codegen.elf import split, write
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.codegen.targets import TARGETS
from ztorch.host.settings import current, using

ROOT = Path(__file__).parents[2]
TARGET = TARGETS[HERE[-1]]
TEXT = "define i32 @f() { ret i32 1 }"
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with empty_cache(tmp_path) as objects:
        yield objects


def test_kept_in_memory_and_in_files(folder: Path) -> None:
    assert cached(["a", "b"], lambda: b"code") == b"code"
    assert cached(["a", "b"], never) == b"code"
    assert len(files(folder)) == 1
    object_cache.forget()
    assert cached(["a", "b"], never) == b"code"


def test_no_two_keys_run_together() -> None:
    keys = [["ab"], ["a", "b"], ["", "ab"], ["ab", ""], ["a", b"c"], []]
    for k, parts in enumerate(keys):
        assert cached(parts, lambda k=k: b"%d" % k) == b"%d" % k
    object_cache.forget()
    for k, parts in enumerate(keys):
        assert cached(parts, never) == b"%d" % k


def test_nothing_is_kept_where_nothing_may_be(folder: Path) -> None:
    with using(cache=None):
        assert cached(["a"], lambda: b"1") == b"1"
        assert cached(["a"], lambda: b"2") == b"2"
    assert not folder.exists()


# -- contents of the key -----------------------------------------------------------------------------


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | str):
        return value + type(value)(1)
    if isinstance(value, tuple):
        return (*value, "other")
    if isinstance(value, frozenset):
        return value | {"other"}
    name = next(f.name for f in fields(value) if isinstance(getattr(value, f.name), int))
    return replace(value, **{name: other(getattr(value, name))})


@pytest.mark.parametrize("field", [f.name for f in fields(TARGET)])
def test_each_field_of_a_target_counts(field: str) -> None:
    changed = replace(TARGET, **{field: other(getattr(TARGET, field))})
    assert canonical_text(changed) != canonical_text(TARGET)


def test_a_row_reads_the_same_in_every_process() -> None:
    """Sets of strings have another order in each."""
    code = ("from ztorch.codegen.object_cache import canonical_text\nfrom ztorch.codegen.targets import TARGETS\n"
            "print([canonical_text(t) for t in TARGETS.values()])")
    outputs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
               for seed in ("1", "2")}
    assert len(outputs) == 1 and len(outputs.pop()) > 1000


def objects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that LLVM is asked to assemble from now on."""
    asked: list[str] = []
    emit = assemble._emit
    monkeypatch.setattr(assemble, "_emit", lambda text, t: (asked.append(text), emit(text, t))[1])
    return asked


def test_llvm_assembles_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = objects(monkeypatch)
    first = assemble.assemble(TEXT, TARGET)
    second = assemble.assemble(TEXT.replace("1", "2"), TARGET)
    assert first != second and len(asked) == 2
    object_cache.forget()
    assert assemble.assemble(TEXT, TARGET) == first and len(asked) == 2
    assert assemble.assemble(TEXT, replace(TARGET, llvm_features=())) and len(asked) == 3


@pytest.mark.parametrize("part", ["llvm_identity", "_source"])
def test_another_llvm_or_other_passes_assemble_again(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = objects(monkeypatch)
    assemble.assemble(TEXT, TARGET)
    monkeypatch.setattr(assemble, part, lambda: "another")
    assemble.assemble(TEXT, TARGET)
    assert len(asked) == 2


def test_the_version_of_llvm_is_in_the_key() -> None:
    """The library that llvmlite loads, by size and time; and the sources of this step."""
    import llvmlite.binding as llvm

    [library] = [p for p in Path(llvm.__file__).parent.glob("*llvmlite*") if p.is_file()]
    stat = library.stat()
    assert f"{stat.st_size}, {stat.st_mtime_ns}" in assemble.llvm_identity()
    assert assemble._source() == b"".join(Path(m.__file__).read_bytes() for m in (llvm_source, split, write))


C = "#include <stdint.h>\n#include \"limit.h\"\nint32_t f(void) { return LIMIT; }"


@needs_compiler
def test_what_a_c_compiler_depends_on(tmp_path: Path, folder: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, headers, flags, target, the command, and the compiler's version."""
    compiled: list[str] = []
    compile_ = cc._compiled
    monkeypatch.setattr(cc, "_compiled", lambda t, *more: (compiled.append(t), compile_(t, *more))[1])
    monkeypatch.setenv("CPATH", str(tmp_path))
    header, script, target = tmp_path / "limit.h", tmp_path / "cc", TARGETS["c"]
    header.write_text("#define LIMIT 1")
    script.write_text("#!/bin/sh\nexec gcc \"$@\"\n")
    script.chmod(0o755)

    def times(text: str = C, target: Any = target, **settings: Any) -> int:
        """How often the compiler runs for it, where nothing is in memory."""
        object_cache.forget()
        cc._programs.cache_clear()
        compiled.clear()
        with using(**{"cc": "gcc", "cache": current().cache, **settings}):
            cc.assemble(text, target)
            cc.assemble(text, target)
        return len(compiled)

    assert times() == 1 and times() == 0
    assert times(C + " ") == 1 and times() == 0
    header.write_text("#define LIMIT 2")
    assert times() == 1 and times() == 0
    assert times(target=replace(target, chip="other")) == 1 and times() == 0
    assert times(cc="gcc -g0") == 1 and times(cc="gcc -g0") == 0
    assert times(cc=str(script)) == 1 and times(cc=str(script)) == 0
    script.write_text("#!/bin/sh\n# an update\nexec gcc \"$@\"\n")  # another size
    assert times(cc=str(script)) == 1
    monkeypatch.setattr(cc, "FLAGS", (*cc.FLAGS, "-O1"))
    assert times() == 1 and times() == 0
