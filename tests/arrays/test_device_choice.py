"""Which device tensors are made on: the default, blocks, the environment and the config file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import placement
from ztorch.errors import DeviceError, UnknownName
from ztorch.runtime import devices

A = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)


@pytest.fixture
def default() -> Iterator[None]:
    """Restores the settings that set_default_device changes."""
    before = list(devices.device_of_process)
    yield
    devices.device_of_process[:] = before


# -- who chooses -------------------------------------------------------------------------------------


def test_the_default_is_set_for_all(default: None, builds: list[str]) -> None:
    zt.set_default_device("cpu:scalar")
    assert placement.default_device() == "cpu:scalar" and zt.tensor(A).device == "cpu"
    assert placement.code_for("cpu") == "cpu:scalar"
    np.testing.assert_array_equal((zt.tensor(A) * 2.0).numpy(), A * 2)
    with zt.device("cpu"):
        assert placement.code_for("cpu") == "cpu"
        np.testing.assert_array_equal((zt.tensor(A) * 2.0).numpy(), A * 2)
    assert len(builds) == 2  # a program for each level
    for wrong in ("nowhere", "cuda:9", "cpu:z80"):
        with pytest.raises((DeviceError, UnknownName), match=wrong.partition(":")[0]):
            zt.set_default_device(wrong)
        with pytest.raises((DeviceError, UnknownName), match=wrong[:4]), zt.device(wrong):
            pass
    assert placement.default_device() == "cpu:scalar"
    with pytest.raises(DeviceError, match="chip, which holds no tensors"):
        zt.set_default_device("cuda:sm_90")


def test_compile_chooses_the_same_device(default: None) -> None:
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(2)])
    usual = zt.best_device()

    def level() -> str:
        return model.compile("auto", batch_size=2).executable.spec.target

    zt.set_default_device("cpu:scalar")
    assert zt.best_device() == "cpu:scalar" and level() == "scalar"
    with zt.device("cpu:sse4.1"):
        assert level() == "sse4.1" and zt.tensor(A).device == "cpu"
        with zt.device("auto"):
            assert zt.best_device() == usual
    zt.set_default_device("auto")
    assert zt.best_device() == usual


def test_an_exception_leaves_the_block() -> None:
    with pytest.raises(ZeroDivisionError), zt.device("cpu:scalar"):
        1 // 0  # noqa: B018
    assert placement.default_device() != "cpu:scalar"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, default: None) -> Iterator[pytest.MonkeyPatch]:
    """The environment may change; its first meaning is looked up again."""
    devices.device_of_process.clear()
    placement._configured.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    placement._configured.cache_clear()


def test_the_environment_and_the_config_file_choose(configured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"default": "cpu:scalar"}))
    configured.setenv("ZTORCH_CONFIG", str(config))
    assert placement.code_for("cpu") == "cpu:scalar" and (zt.ones(2) + 1).tolist() == [2.0, 2.0]
    configured.setenv("ZTORCH_DEVICE", "cpu")
    assert placement.code_for("cpu") == "cpu:scalar"  # it was asked once
    placement._configured.cache_clear()
    assert placement.code_for("cpu") == "cpu" and zt.ones(2).device == "cpu"


@pytest.mark.parametrize(("name", "words"), [("vulcan:0", "did you mean 'vulkan'"), ("metal:77", "metal"),
                                             ("cuda:sm_90", "chip")])
def test_a_wrong_choice_is_named(configured: pytest.MonkeyPatch, name: str, words: str) -> None:
    configured.setenv("ZTORCH_DEVICE", name)
    for _ in range(2):
        with pytest.raises((DeviceError, UnknownName), match=words) as caught:
            zt.zeros(2)
        assert "ZTORCH_DEVICE" in str(caught.value) or words == "chip"
    with zt.device("cpu"):
        assert zt.ones(2).tolist() == [1.0, 1.0]


def test_a_process_starts_with_its_environment() -> None:
    code = "import ztorch as zt; from ztorch.arrays.placement import code_for; print(zt.ones(1).device, code_for('cpu'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), "ZTORCH_DEVICE": "cpu:scalar"})
    assert done.stdout == "cpu cpu:scalar\n", done.stderr
