"""Files that cannot be written, or are something else, and programs that are not files at all: each
meets an error of its own, and leaves nothing half done."""

from __future__ import annotations

import copy
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ztorch as zt
from tests.cases.small_model import X, Y, compiled, model
from ztorch.callbacks import ModelCheckpoint
from ztorch.errors import ArtifactError, ConfigError, FileError, WeightsError
from ztorch.files import atomic
from ztorch.program.program import Program


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


@pytest.mark.cheap
@pytest.mark.parametrize("name", ["m.keras", "m.h5", "m.pt", "m.onnx", "m.safetensors"])
def test_artifacts_have_no_names_of_other_files(program: Program, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"artifact to '.*{name}'.*name it .zt"):
        program.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_partial_file_is_left(tmp_path: Path) -> None:
    atomic.write_atomic(tmp_path / "a", b"one")
    with pytest.raises(FileError, match="cannot write"):
        atomic.write_atomic(tmp_path / "a" / "b", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [tmp_path / "a"] and not atomic.unfinished


WRITERS = {
    "save": (".zt", lambda p, path: p.save(path)),
    "save_weights": (".safetensors", lambda p, path: p.save_weights(path)),
    "save_checkpoint": (".ckpt", lambda p, path: p.save_checkpoint(path)),
    "plot": (".svg", lambda p, path: p.plot(path)),
    "history.plot": (".svg", lambda p, path: p.history.plot(path)),
}


@pytest.mark.parametrize(("suffix", "write"), WRITERS.values(), ids=WRITERS)
def test_unwritable_paths(program: Program, tmp_path: Path, suffix: str, write: Any) -> None:
    program.fit(X, Y, verbose=0)
    (tmp_path / "file").write_text("mine")
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    for place, reason in (("file/x", "cannot write .*file/x"), ("folder", "it is a folder"),
                          ("pipe", "not a regular file"), ("zero\0byte", "null (byte|character)")):
        with pytest.raises(FileError, match=f"{reason}.*pass another path"):
            write(program, tmp_path / f"{place}{suffix}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", f"folder{suffix}", f"pipe{suffix}"]
    assert (tmp_path / "file").read_text() == "mine"
    assert stat.S_ISFIFO((tmp_path / f"pipe{suffix}").stat().st_mode)


def test_a_full_disk_leaves_the_old_file(program: Program, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    program.save_weights(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"cannot write .*w\.safetensors.*No space left"):
        program.save_weights(path)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_plots_accept_only_writable_formats(program: Program, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("plan.xyz", "plan"):
        with pytest.raises(ConfigError, match=r"must end in \.png, \.svg"):
            program.plot(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_files_that_are_something_else(program: Program, tmp_path: Path) -> None:
    weights, checkpoint, other = (tmp_path / n for n in ("w.safetensors", "c.ckpt", "o.zt"))
    program.save_weights(weights)
    program.save_checkpoint(checkpoint)
    compiled(units=6).save(other)
    wrong: list[tuple[Callable[[Any], Any], Path, type[Exception], str]] = [
        (zt.load, tmp_path / "none", ArtifactError, "cannot read .*none"),
        (zt.load, tmp_path, ArtifactError, "is a folder"),
        (zt.load, tmp_path / "zero\0byte", ArtifactError, "null (byte|character)"),
        (zt.load, weights, ArtifactError, "not a ztorch artifact"),
        (program.load_weights, tmp_path / "none", WeightsError, "cannot read .*none"),
        (program.load_weights, other, WeightsError, "not a complete safetensors file"),
        (program.load_checkpoint, weights, WeightsError, "load weights with load_weights"),
        (compiled(units=6).load_weights, weights, WeightsError, r"\(4, 6\).*\(4, 5\)"),
        (compiled(units=6).load_checkpoint, checkpoint, WeightsError, r"\(4, 6\).*\(4, 5\)"),
    ]
    for read, path, kind, message in wrong:
        with pytest.raises(kind, match=message):
            read(path)


def test_programs_are_saved_not_pickled(program: Program) -> None:
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"save\(\) and read it with zt.load"):
            take(program)


def test_a_closed_program_says_so(program: Program) -> None:
    with compiled() as short:
        short.fit(X, Y, verbose=0)
    for use in (lambda: short.predict(X), lambda: short.fit(X, Y), short.get_weights,
                lambda: short.save("x.zt"), lambda: short.train_on_batch(X[:2], Y[:2])):
        with pytest.raises(ConfigError, match="is closed; compile or load it again"):
            use()
    assert "closed" in repr(short)
    short.close()


KINDS: dict[str, tuple[str, Callable[[Program, Path], Any]]] = {
    "artifact": (".zt", lambda p, path: p.save(path)),
    "checkpoint": (".safetensors .ckpt", lambda p, path: p.save_checkpoint(path)),
    "weights": (".safetensors", lambda p, path: p.save_weights(path)),
    "weights of a model": (".safetensors .h5 .npz .gguf", lambda _, path: model().save_weights(path)),
    "for PyTorch": (".safetensors .npz .gguf", lambda _, path: model().save_weights(path, layout="torch")),
    "callback": (".zt .safetensors .ckpt", lambda p, path: p.fit(
        X, Y, verbose=0, callbacks=ModelCheckpoint(path)))}


SUFFIXES = sorted({suffix for own, _ in KINDS.values() for suffix in own.split()})


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_named_as_one_of_another_kind(program: Program, tmp_path: Path,
                                                 kind: str) -> None:
    own, write = KINDS[kind]
    for suffix in ("", ".foo", ".2", ".pkl", ".onnx", ".json", *SUFFIXES):
        path = tmp_path / f"best{suffix}"
        if suffix in own.split():
            write(program, path)
            assert path.stat().st_size
        else:
            with pytest.raises(ConfigError,
                               match=r"cannot write .*best.*(name it|use a name|use .zt|use a path)"):
                write(program, path)
            assert not path.exists()
