"""The plan as a picture."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from ztorch import Sequential
from ztorch import layers as L
from ztorch.errors import ConfigError, UnknownName
from ztorch.program.picture import alive, draw_plan, layers_of
from ztorch.program.program import Program
from ztorch.runtime.spec import FunctionSpec, ProgramSpec


def spec(kernels: Any, buffers: Any = ()) -> ProgramSpec:
    f = FunctionSpec("predict", "zt_predict", {}, {}, sum(c for _, c in kernels), tuple(kernels),
                     tuple(buffers))
    return ProgramSpec("toy", "avx2", "x86_64", (), {"predict": f}, {}, 0, 4096, ())


SMALL = spec([("k0_dense_matmul_add", 300.0), ("k1_dense_1_matmul", 90.0), ("k2_sum", 10.0)],
             [("dense:add", 2048, 0, 1, 0), ("dense_1:matmul", 1024, 1, 2, 2048),
              ("sum", 64, 2, 2, 0)])


@pytest.fixture
def program() -> Program:
    model = Sequential([L.Input((8,)), L.Dense(16, activation="relu"), L.Dense(3)], name="net")
    return model.compile("cpu", batch_size=4, optimizer="adam", loss="mse", threads=1)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"),
                                             ("p.pdf", b"%PDF")])
def test_draws(tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw_plan(SMALL, "predict", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_shows_the_plan() -> None:
    pytest.importorskip("matplotlib")
    work, arena, memory = draw_plan(SMALL, "predict").axes
    assert [round(bar.get_height()) for bar in work.patches] == [75, 22, 2]
    first, second, third = arena.patches
    assert first.get_height() + first.get_y() == second.get_y()  # side by side while both live
    assert third.get_y() == 0  # takes the place of the first
    assert first.get_facecolor() == (*work.patches[0].get_facecolor()[:3], 0.75)  # by layer
    assert first.get_facecolor() != second.get_facecolor()
    assert max(memory.patches[0].get_data().values) == 3.0  # KiB
    assert any("k1_dense_1_matmul" in t.get_text() for t in memory.texts)


def test_the_picture_shows_the_kernels(program: Program, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = program.plot(tmp_path / "plan.png")
    train = program.executable.functions["train"]
    assert len(figure.axes[1].patches) == len(train.buffers)
    assert "train" in figure.get_suptitle()
    assert "predict" in program.plot(function="predict").get_suptitle()
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    with pytest.raises(UnknownName, match="predict"):
        program.plot(function="predictt")


def test_no_buffers_and_very_many_kernels() -> None:
    pytest.importorskip("matplotlib")
    one = draw_plan(spec([("k0_neg", 0.0)]), "predict")
    assert "no buffers" in one.axes[1].get_title(loc="left")
    many = draw_plan(spec([(f"k{k}_add", 1.0) for k in range(300)]), "predict")
    assert len(many.axes[2].get_xticklabels()) < 100  # names would overlap


def test_layers_and_bytes_alive() -> None:
    assert layers_of(SMALL.functions["predict"]) == ["dense", "dense_1"]
    assert alive(SMALL.functions["predict"].buffers, 3) == [2048, 3072, 1088]


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="no plan"):
        draw_plan(spec([]), "predict")
    with pytest.raises(ConfigError, match="cannot plot to"):
        draw_plan(SMALL, "predict", tmp_path / "p.xyz")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match=r'pip install "ztorch\[plot\]"'):
        draw_plan(SMALL, "predict")
