"""Features of Vulkan alone: optional features, staging buffers, a driver that may be absent."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cases import available, contract
from tests.cases import device_programs as programs
from tests.cases.available import device
from tests.cases.jobs import jobs
from tests.parity import Job, agree
from ztorch import ops
from ztorch.backends import vulkan_devices
from ztorch.backends.drivers import vulkan
from ztorch.backends.drivers.vulkan import STAGE, VulkanDevice
from ztorch.dtypes import DType, boolean, f16, f32, f64, i8, i16, u64
from ztorch.errors import DeviceError, Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


@pytest.fixture
def staged() -> Iterator[VulkanDevice]:
    """A device whose memory the host cannot see, as that of most graphics cards."""
    here = device("vulkan")
    d = VulkanDevice(here.info, vulkan_devices.physical_device(here.info.ordinal), direct=False)
    yield d
    d.close()


def test_bytes_pass_through_the_staging_buffer(staged: VulkanDevice) -> None:
    n = 2 * STAGE + 1000
    numbers = np.random.default_rng(0).integers(0, 256, n).astype(np.uint8)
    buffer, other = staged.alloc(n + 16), staged.alloc(n)
    staged.write(buffer, numbers, 8)
    staged.copy(buffer, other, n - 4, 12, 0)
    out = np.empty(n - 4, np.uint8)
    staged.read(other, out)
    np.testing.assert_array_equal(out, numbers[4:])
    part = np.empty(100, np.uint8)
    staged.read(buffer, part, 8 + STAGE - 50)
    np.testing.assert_array_equal(part, numbers[STAGE - 50:STAGE + 50])


def test_programs_run_without_shared_memory(staged: VulkanDevice,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "device", lambda _: staged)
    some = jobs()["softmax'"]
    module = programs.Module(some, "vulkan")
    for k, job in enumerate(some):
        agree(job, module.run(k), terms=20)
    del module  # before its device


def test_steps_overlap_where_inputs_and_outputs_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    here = device("vulkan")
    monkeypatch.setattr(contract, "fresh", lambda _: VulkanDevice(
        here.info, vulkan_devices.physical_device(here.info.ordinal), direct=False))
    contract.test_submitted_work_runs_in_order("vulkan")


@pytest.mark.parametrize(("capability", "d", "says"), [
    (11, u64, "int64 and uint64"), (10, f64, "float64"), (39, i8, "int8"), (22, f16, "float16"),
    (4433, i16, "buffers of int16"), (4448, boolean, "bool")])
def test_a_feature_that_is_missing_is_named(capability: int, d: DType, says: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    here = device("vulkan")
    poor = copy.copy(vulkan_devices.physical_device(here.info.ordinal))
    poor.capabilities = poor.capabilities - {capability}
    x = leaf("input", "x", (5,), f32)
    wants = Job(Graph({"y": ops.cast(x, d)}), {x: np.ones(5, np.float32)})
    with VulkanDevice(here.info, poor) as held:
        monkeypatch.setattr(programs, "device", lambda _: held)
        with pytest.raises(Unsupported, match=f"vulkan:0.*has no .*{says}") as error:
            programs.Module([wants], "vulkan")
        assert here.info.name in str(error.value)
        module = programs.Module(jobs()["tanh"][:1], "vulkan")  # programs that need none of it still run
        agree(jobs()["tanh"][0], module.run(0), terms=20)
        del module


@pytest.mark.parametrize(("error", "says"), [(ModuleNotFoundError, "pip install 'ztorch"),
                                             (OSError, "no Vulkan loader")])
def test_an_absent_driver_is_an_answer(error: type[Exception], says: str,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise error("not here")

    monkeypatch.setattr(vulkan_devices, "vk", absent)
    assert says in vulkan.BACKEND.refusal()
    assert vulkan.BACKEND.devices() == []


def test_no_device_of_that_number() -> None:
    device("vulkan")
    with pytest.raises(DeviceError, match="no device vulkan:99"):
        vulkan.BACKEND.open(99)


def test_a_failing_call_is_an_error_with_its_name() -> None:
    with available.fresh("vulkan") as d:
        assert isinstance(d, VulkanDevice)
        api = vulkan_devices.vk()

        def lost(*_: object) -> None:
            raise api.VkErrorDeviceLost

        with pytest.raises(DeviceError, match="vulkan:0: vkQueueSubmit: VkErrorDeviceLost"):
            d._calls.attempt("vkQueueSubmit", lost)
        d.free(d.alloc(64))


LAYER = "VK_LAYER_KHRONOS_validation"
ENABLED = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_ENABLES":
           "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}
TRAIN = """
from tests.cases.zoo import program
made, x, y = program({model!r}, "vulkan")
made.fit(x, y, verbose=0)
made.predict(x)
"""
RACE = """
from tests.cases.available import device
from tests.cases.doubled import loaded
from ztorch.backends.drivers.vulkan import VulkanDevice
VulkanDevice._barrier = lambda *a, **k: None
d = device("vulkan")
module, launches, buffers = loaded(d, chained=3)
d.run(d.record(module, launches))
d.synchronize()
"""


LIFE = """
import numpy as np
from tests.cases.available import fresh
from tests.cases.doubled import N, loaded
from ztorch.backends import vulkan_devices
from ztorch.backends.drivers.vulkan import VulkanDevice
for direct in (True, False):
    here = fresh("vulkan")
    d = VulkanDevice(here.info, vulkan_devices.physical_device(here.info.ordinal), direct)
    here.close()
    module, launches, buffers = loaded(d, chained=3)
    d.write(buffers["inputs"], np.ones(N, np.float32))
    recording = d.record(module, launches)
    d.run(recording)
    d.read(buffers["outputs"], np.empty(N, np.float32))
    if direct:  # each by itself; else all when it closes
        d.drop(recording)
        d.unload(module)
        for buffer in buffers.values():
            d.free(buffer)
    d.close()
"""
LEAKS = {
    "Buffer": "Memories.free = lambda *a: None",
    "DeviceMemory": "vulkan_devices.vk().vkFreeMemory = lambda *a: None",
    "Pipeline": "VulkanDevice._unload = lambda *a: None",
    "DescriptorPool": "VulkanDevice._drop = lambda *a: None",
}


def complaints(source: str) -> str:
    """The messages of Khronos' validation layer for a program, races between launches included."""
    device("vulkan")
    layers = vulkan_devices.vk().vkEnumerateInstanceLayerProperties()
    if LAYER not in [str(layer.layerName) for layer in layers]:
        pytest.skip("the package vulkan-validationlayers is not installed")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True,
                          env={**os.environ, **ENABLED}, timeout=280)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("model", [
    "digits_cnn", pytest.param("tiny_gpt", marks=pytest.mark.full)])
def test_nothing_is_used_against_the_rules(model: str) -> None:
    assert complaints(TRAIN.format(model=model)) == ""


def test_all_resources_are_released() -> None:
    """The layer knows the resources that a closed device has not released."""
    assert complaints(LIFE) == ""


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_would_be_detected(kind: str) -> None:
    broken = ("from ztorch.backends import vulkan_devices\n"
              "from ztorch.backends.drivers.vulkan import VulkanDevice\n"
              f"from ztorch.backends.vulkan_memory import Memories\n{LEAKS[kind]}\n")
    text = complaints(broken + LIFE)
    assert "has not been destroyed" in text and f"Vk{kind}" in text


def test_a_missing_barrier_would_be_detected() -> None:
    assert "SYNC-HAZARD-READ-AFTER-WRITE" in complaints(RACE)
