"""Which devices may be used: the config file, the environment before it, and the consequences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cases.available import device
from ztorch import settings
from ztorch.backends import registry
from ztorch.errors import ConfigError, DeviceError
from ztorch.host.choices import MAX_FILE_BYTES, Choices, choices
from ztorch.runtime.devices import ResolvedDevice, best_device, devices, resolve


def config(folder: Path, **content: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_the_file_is_read(tmp_path: Path) -> None:
    path = config(tmp_path, enabled=["cpu", "dummy"], devices={"dummy": [0]},
                  platforms={"opencl": ["Portable"]}, default="dummy:0")
    with settings.using(config=path):
        assert choices() == Choices(("cpu", "dummy"), {"dummy": (0,)}, {"opencl": ("Portable",)},
                                    "dummy:0")


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, enabled=["cpu"], default="cpu")
    env = {**os.environ, "ZTORCH_CONFIG": path, "ZTORCH_BACKENDS": "dummy, cpu",
           "ZTORCH_DEVICE": "dummy"}
    code = "from ztorch.host.choices import choices; print(choices().enabled, choices().default)"
    ran = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True,
                         check=True)
    assert ran.stdout.strip() == "('dummy', 'cpu') dummy"


def test_sections_of_backends(tmp_path: Path) -> None:
    """In JSON and in TOML alike; a section that is switched off hides its devices."""
    path = tmp_path / "config.toml"
    path.write_text('enabled = ["cpu"]\n[backends.opencl]\nenabled = true\ndevice_ids = [0, 2]\n'
                    'platforms = ["Portable"]\n[backends.dummy]\nenabled = false\n')
    expected = Choices(("cpu", "opencl"), {"opencl": (0, 2)}, {"opencl": ("Portable",)}, None, ("dummy",), False,
                       ("opencl", "dummy"))
    as_json = config(tmp_path, enabled=["cpu"], backends={
        "opencl": {"enabled": True, "device_ids": [0, 2], "platforms": ["Portable"]},
        "dummy": {"enabled": False}})
    with settings.using(config=as_json):
        assert choices() == expected
        assert registry.usable_devices("dummy") == ([], "the configuration does not enable this backend")
    if sys.version_info >= (3, 11):
        with settings.using(config=str(path)):
            assert choices() == expected
        path.write_text("enabled = [")
        with settings.using(config=str(path)), pytest.raises(ConfigError, match="is not TOML"):
            choices()


def test_toml_without_a_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text('default = "cpu"')
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    with settings.using(config=str(tmp_path / "config.toml")), pytest.raises(
            ConfigError, match=r"is TOML, which Python reads from 3\.11 on; pip install tomli"):
        choices()


def test_the_default_path_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "ztorch").mkdir()
    (tmp_path / "ztorch" / "config.json").write_text('{"default": "dummy:0"}')
    code = "from ztorch.host.choices import choices; print(choices())"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ZTORCH_")}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "ZTORCH_DEVICE_IDS": "cuda:1, cuda:0,opencl:2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, text=True,
                         capture_output=True, check=True)
    assert "devices={'cuda': (1, 0), 'opencl': (2,)}" in ran.stdout and "default='dummy:0'" in ran.stdout
    (tmp_path / "ztorch" / "config.toml").write_text('default = "cpu"')
    with settings.using(config=None, config_home=str(tmp_path)), pytest.raises(
            ConfigError, match="there are two config files"):
        choices()
    with settings.using(device_ids=("cuda",)), pytest.raises(ConfigError, match="ZTORCH_DEVICE_IDS names 'cuda'"):
        choices()


def test_an_unknown_key_is_warned_of_once(tmp_path: Path) -> None:
    path = config(tmp_path, backends={"cuda": {"device_id": [0]}})
    with settings.using(config=path):
        with pytest.warns(UserWarning, match=r"unknown key 'backends\.cuda\.device_id'; did you mean 'device_ids'"):
            choices()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            choices()


def test_the_environment_overrides_autotune_of_the_file(tmp_path: Path) -> None:
    with settings.using(config=config(tmp_path, autotune=True)):
        assert choices().autotune
        with settings.using(autotune=False):
            assert not choices().autotune


@pytest.mark.cheap
@pytest.mark.parametrize("content", [
    {"enabled": ["cpu", "vulcan"]}, {"backends": {"vulcan": {"enabled": False}}}, {"backends": {"vulcan": {"enabled": True}}},
    {"devices": {"vulcan": [0]}}, {"platforms": {"vulcan": ["x"]}}])
def test_an_unknown_backend_warns_with_a_suggestion(tmp_path: Path, content: dict) -> None:
    with settings.using(config=config(tmp_path, **content)), pytest.warns(
            UserWarning, match="an unknown backend 'vulcan'; did you mean 'vulkan'"):
        registry.usable_devices("dummy")


def test_an_unknown_key_warns_with_a_suggestion(tmp_path: Path) -> None:
    with settings.using(config=config(tmp_path, defualt="cpu")), pytest.warns(
            UserWarning, match="unknown key 'defualt'; did you mean 'default'"):
        choices()


WRONG_VALUES = [
    ({"enabled": "cpu"}, "'enabled' must be a list of names"),
    ({"devices": {"cuda": ["0"]}}, "'devices' must be lists by backend"),
    ({"devices": {"cuda": [True]}}, "'devices' must be lists by backend"),
    ({"platforms": ["x"]}, "'platforms' must be lists by backend"),
    ({"default": 3}, "'default' must be a device"),
    ({"autotune": 1}, "'autotune' must be true or false"),
    ({"backends": ["cuda"]}, "'backends' must hold a section for each backend"),
    ({"backends": {"cuda": {"enabled": "no"}}}, "'backends.cuda.enabled' must be true or false"),
    ({"backends": {"cuda": {"device_ids": ["0"]}}}, "'backends.cuda.device_ids' must be a list of numbers"),
]


def test_values_of_the_wrong_kind(tmp_path: Path) -> None:
    for content, message in WRONG_VALUES:
        with settings.using(config=config(tmp_path, **content)), pytest.raises(
                ConfigError, match=message):
            choices()


def test_an_invalid_file(tmp_path: Path) -> None:
    with settings.using(config=str(tmp_path / "no.json")), pytest.raises(
            ConfigError, match="cannot read the config file"):
        choices()
    for text in ("{", '{"default":' * 50_000):
        (tmp_path / "bad.json").write_text(text)
        with settings.using(config=str(tmp_path / "bad.json")), pytest.raises(
                ConfigError, match="is not JSON"):
            choices()


def test_the_size_limit_of_the_file(tmp_path: Path) -> None:
    text = '{"default": "cpu"}'
    (tmp_path / "large.json").write_text(text + " " * (MAX_FILE_BYTES - len(text)))
    with settings.using(config=str(tmp_path / "large.json")):
        assert choices().default == "cpu"


def test_a_file_without_end() -> None:
    with settings.using(config="/dev/zero"), pytest.raises(ConfigError, match="more than 1,048,576 bytes"):
        choices()


def test_disabled_backends_are_unavailable() -> None:
    with settings.using(backends=("cpu",)):
        actual, why = registry.usable_devices("dummy")
        assert not actual and "does not enable" in why
        row = next(d for d in devices() if d.id == "dummy")
        assert not row.available and "does not enable" in row.reason
        with pytest.raises(DeviceError, match="no dummy device here"):
            registry.open_device("dummy")


def test_devices_by_number(tmp_path: Path) -> None:
    with settings.using(config=config(tmp_path, devices={"dummy": [3]})):
        assert registry.usable_devices("dummy") == ([], "the configuration excludes all of its devices")


def test_auto_means_the_default() -> None:
    with settings.using(device="dummy"):
        assert best_device() == "dummy"
        assert resolve("auto") == ResolvedDevice("dummy", "dummy", 0)
    with settings.using(device="auto"), pytest.raises(DeviceError, match="device is 'auto'; name"):
        resolve("auto")


def test_no_device_at_all_is_an_error() -> None:
    with settings.using(backends=("cuda", "rocm")), pytest.raises(
            DeviceError, match="no device is available"):
        if any(registry.usable_devices(n)[0] for n in ("cuda", "rocm") if n in registry.names()):
            pytest.skip("a GPU is here")
        best_device()


def test_none_enabled(tmp_path: Path) -> None:
    with settings.using(config=config(tmp_path, enabled=[])), pytest.raises(
            DeviceError, match=r"the configuration enables none\. Add 'cpu'"):
        best_device()


def test_a_broken_driver_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise OSError("the driver's library is damaged")
    monkeypatch.setattr(registry.backend("dummy"), "refusal", broken)
    with pytest.warns(UserWarning, match="backend dummy is broken: OSError: the driver's library"):
        listed = devices()
    assert listed[0].id == "cpu" and listed[0].available
    row = next(d for d in listed if d.id == "dummy")
    assert not row.available and "its driver is broken" in row.reason


@pytest.mark.parametrize(("package", "backend"), [
    ("pyopencl", "opencl"), ("vulkan", "vulkan"), ("wgpu", "webgpu")])
def test_a_broken_package(tmp_path: Path, package: str, backend: str) -> None:
    """It is not said to be missing: to install it again would not help. One line for each warning."""
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise ImportError('a library fails to load')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ran = subprocess.run([sys.executable, "-m", "ztorch", "devices"], text=True, check=True,
                         capture_output=True, env={**os.environ, "PYTHONPATH": path,
                                                   "ZTORCH_BACKENDS": f"cpu,{backend}"})
    assert "its driver is broken: a library fails to load" in ran.stdout
    assert ran.stderr == (f"warning: backend {backend} is broken: ImportError: a library fails to "
                          "load\n")


@pytest.mark.parametrize(("variable", "content", "stderr"), [
    ("VK_ICD_FILENAMES", None, ""), ("OCL_ICD_VENDORS", None, ""),
    # A loader that cannot read the installed library; its error has a separate code.
    ("VK_ICD_FILENAMES", "this is not JSON", r"warning: backend vulkan is broken: VkError\w+\n")])
def test_loaders_that_find_nothing_or_rubbish(tmp_path: Path, variable: str, content: str | None,
                                              stderr: str) -> None:
    name = "vulkan" if variable.startswith("VK") else "opencl"
    device(name)
    file = tmp_path / "driver.json"
    if content is not None:
        file.write_text(content)
    ran = subprocess.run([sys.executable, "-m", "ztorch", "devices"], text=True, check=True,
                         capture_output=True, env={**os.environ, variable: str(file),
                                                   "ZTORCH_BACKENDS": f"cpu,{name}"})
    assert re.fullmatch(stderr, ran.stderr), ran.stderr
    assert re.search(rf"\n  {name} +{'its driver is broken' if stderr else 'the .* loader finds no'}",
                     ran.stdout), ran.stdout


def test_an_absent_driver_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed = devices()
    assert all(d.reason for d in listed if not d.available)


def test_superscripts_are_no_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZTORCH_THREADS", "²")
    with pytest.raises(ConfigError, match="ZTORCH_THREADS='²' must be an integer of at least 0"):
        settings.current()
    assert resolve("cuda:²").ordinal is None and resolve("cuda:²").target == "cuda:²"
