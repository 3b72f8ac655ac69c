"""The language for an OpenCL driver, with a stand-in for pyopencl that computes nothing but checks its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available, contract
from tests.cases.jobs import jobs
from ztorch import layers as L
from ztorch import ops, settings
from ztorch.artifact.write import write_artifact
from ztorch.backends import registry, spirv
from ztorch.backends.drivers import opencl
from ztorch.backends.handles import KernelEntry
from ztorch.codegen.targets import TARGETS, target
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.dtypes import f32, f64
from ztorch.errors import DeviceError, Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.runtime.devices import device_info, device_refusal, resolve
from ztorch.runtime.snapshot import Snapshot

ALL = "SPIR-V_1.0 SPIR-V_1.2 SPIR-V_1.5"


class Refused(Exception):
    """The error of pyopencl."""


class Driver:
    """A stand-in for pyopencl: one device, and the texts it was asked to compile. `refuses` is a call
    that fails."""

    def __init__(self, il: str | None = ALL, version: str = "OpenCL 3.0 stand-in", bits: int = 64,
                 extensions: str = "cl_khr_fp64", refuses: str = "", kind: int = 4, wide: int = 1):
        self.refuses = refuses
        self.made: list[tuple[Any, list[str]]] = []  # sources or modules, with their options
        self.asked: list[str] = []
        driver = self

        class Device:
            name, type, driver_version = "stand-in", kind, "1"
            native_vector_width_float = wide
            host_unified_memory, max_work_group_size, max_work_item_sizes = False, 256, [256] * 3
            local_mem_size, mem_base_addr_align, max_compute_units = 1 << 15, 1024, 4
            max_mem_alloc_size = global_mem_size = 1 << 30
            address_bits, platform = bits, SimpleNamespace(name="Stand-in", version=version)

            @property
            def il_version(self) -> str:
                driver.asked.append("il_version")
                if il is None:
                    raise Refused("clGetDeviceInfo failed: INVALID_VALUE")
                return il

        Device.extensions = extensions  # type: ignore[attr-defined]
        self.devices = [Device()]

    def __call__(self) -> Any:
        """The package."""
        return SimpleNamespace(
            Error=Refused, MemoryError=type("Memory", (Refused,), {}), CompilerWarning=UserWarning,
            device_type=SimpleNamespace(GPU=4, CPU=2), mem_flags=SimpleNamespace(READ_WRITE=1),
            get_platforms=lambda: [SimpleNamespace(get_devices=lambda: self.devices)],
            Context=lambda devices: object(), Program=self._program, Kernel=self._kernel,
            CommandQueue=lambda context, device: SimpleNamespace(finish=lambda: None,
                                                                 flush=lambda: None),
            Buffer=lambda context, flags, nbytes: SimpleNamespace(release=lambda: None),
            enqueue_copy=lambda *given, **more: None)

    def _program(self, context: object, given: str | bytes) -> Any:
        assert isinstance(given, bytes) == (given[:4] in (b"\x03\x02\x23\x07",))
        call = "clCreateProgramWithIL" if isinstance(given, bytes) else "clCreateProgramWithSource"
        self.made.append((given, []))
        if self.refuses == call:
            raise Refused(f"{call} failed: INVALID_VALUE")
        return SimpleNamespace(given=given, build=self._build)

    def _build(self, options: list[str], devices: list[Any]) -> Any:
        assert devices == self.devices
        given, held = self.made[-1]
        held += options
        if self.refuses == "clBuildProgram":
            raise Refused("clBuildProgram failed: BUILD_PROGRAM_FAILURE")
        return SimpleNamespace(given=given)

    def _kernel(self, program: Any, name: str) -> Any:
        given = program.given
        names = spirv.requirements(given).names if isinstance(given, bytes) else given
        assert name in names
        return SimpleNamespace()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Puts a pretended driver in place of pyopencl, whatever the user's configuration says."""
    monkeypatch.setattr(registry, "_opened", {})
    (tmp_path / "config.json").write_text("{}")

    def install(**more: Any) -> Driver:
        registry._opened.clear()
        driver = Driver(**more)
        monkeypatch.setattr(opencl, "_cl", driver)
        return driver

    with settings.using(config=str(tmp_path / "config.json"), backends=(), opencl_il=True):
        yield install
    for device in registry._opened.values():
        device.close()


def small() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3)], name="small")


def compiled() -> Any:
    return small().compile("opencl:0", batch_size=2, loss="mse", optimizer="sgd")


def exported(path: Path, device: str) -> Path:
    """An artifact that predicts on a device which need not be here."""
    traced = small().trace(2)
    made = compile_functions(traced.functions, target(resolve(device, must_be_local=False).target), "small")
    write_artifact(path, Snapshot(made.spec, made.code, made.params, traced.metadata))
    return path


def modules_of(graph: Graph) -> Compiled:
    return compile_functions({"f": graph}, TARGETS["opencl:spirv"], "f")


def test_inputs_are_uploaded_during_an_earlier_run() -> None:
    """Here one that cannot even begin."""
    available.device("opencl")
    cl = opencl._cl()
    with available.fresh("opencl") as d:
        module, launches, buffers = contract.loaded(d)
        recording, x = d.record(module, launches), np.arange(contract.N, dtype=np.float32)
        out = np.zeros_like(x)
        gate = cl.UserEvent(d._context)
        cl.enqueue_barrier(d._queue, wait_for=[gate])
        events = d.submit(recording, buffers["inputs"], x.view(np.uint8), buffers["outputs"], out.view(np.uint8))
        arrived, done = events
        arrived.wait()
        assert done.command_execution_status != cl.command_execution_status.COMPLETE and not out.any()
        gate.set_status(cl.command_execution_status.COMPLETE)
        d.finish(events)
        np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("il", [ALL, "SPIR-V_1.2", "OTHER_7.0 SPIR-V_1.0"])
def test_spirv_if_the_driver_accepts_it(install: Any, il: str) -> None:
    driver = install(il=il)
    program = compiled()
    assert resolve("opencl:0").target == "opencl:spirv"
    assert program.executable.spec.target == "opencl:spirv"
    assert len(driver.made) > 3
    for given, options in driver.made:
        assert len(spirv.requirements(given).names) == 1
        assert "-cl-std=CL1.2" not in options
        assert set(settings.current().opencl_options) <= set(options)


@pytest.mark.parametrize("lacks", [
    {"il": ""}, {"il": None}, {"il": "OTHER_1.0"}, {"version": "OpenCL 2.0 stand-in"},
    {"version": "OpenCL 1.2"}, {"version": "stand-in"}, {"bits": 32}], ids=str)
def test_opencl_c_elsewhere(install: Any, lacks: dict[str, Any]) -> None:
    """Below OpenCL 2.1 the very question is left out: the call behind the answer would not be there."""
    driver = install(**lacks)
    program = compiled()
    assert program.executable.spec.target == "opencl" and len(driver.made) > 0
    for given, options in driver.made:
        assert "__kernel" in given and "-cl-std=CL1.2" in options
    assert bool(driver.asked) == ("il" in lacks)


@pytest.mark.parametrize(("kind", "wide", "implicit_simd"), [
    (4, 1, False), (4, 4, False), (2, 1, False), (2, 16, True)])
def test_threads_that_are_lanes_compute_one_element_each(install: Any, kind: int, wide: int,
                                                      implicit_simd: bool) -> None:
    """Which they are where a driver says that it is a processor and how wide its vectors are."""
    install(kind=kind, wide=wide)
    where = resolve("opencl:0")
    chosen = target(where.target).on_device(dict(device_info(where).limits))
    assert chosen.limits.grid is not None and chosen.limits.grid.implicit_simd == implicit_simd
    x = leaf("input", "x", (512, 256), f32)
    for y, lanes in ((x * 2.0, 1 if implicit_simd else 4), (ops.softmax(x), 4)):
        made = compile_functions({"f": Graph({"y": y})}, chosen, "f")
        loads = [i.dest.lanes for s in made.plans["f"].steps for i in s.kernel.body if i.opcode == "load"]
        assert max(loads) == lanes


def test_the_user_can_choose_the_language(install: Any, tmp_path: Path) -> None:
    """By exporting for it, as for any chip, or for all programs by a setting."""
    driver = install()
    for device, is_module in (("opencl", False), ("opencl:spirv", True)):
        path = exported(tmp_path / f"{is_module}.zt", device)
        driver.made.clear()
        assert zt.load(path).executable.spec.target == device
        assert {isinstance(given, bytes) for given, _ in driver.made} == {is_module}
    with settings.using(opencl_il=False):
        driver = install()
        assert compiled().executable.spec.target == "opencl"
        assert not any(isinstance(given, bytes) for given, _ in driver.made)
        assert device_refusal(zt.load(tmp_path / "True.zt").executable.spec) == ""


@pytest.mark.parametrize(("call", "code"), [("clCreateProgramWithIL", "INVALID_VALUE"),
                                            ("clBuildProgram", "BUILD_PROGRAM_FAILURE")])
def test_a_module_that_is_refused_is_an_error(install: Any, call: str, code: str) -> None:
    """And is not tried again as something else."""
    driver = install(refuses=call)
    with pytest.raises(DeviceError, match=f"^opencl:0: {call}: .*{code}"):
        compiled()
    assert len(driver.made) == 1 and isinstance(driver.made[0][0], bytes)
    driver.refuses = ""
    compiled()  # the device is as good as before


def test_modules_for_a_device_that_accepts_none(install: Any, tmp_path: Path) -> None:
    exported(tmp_path / "m.zt", "opencl:spirv")
    driver = install(il="")
    with pytest.raises(DeviceError, match=r"the chip spirv; this machine has stand-in"):
        zt.load(tmp_path / "m.zt")
    made = modules_of(jobs()["tanh"][0].alone("f"))
    entries = [KernelEntry(*e) for e in made.spec.entries]
    with opencl.BACKEND.open() as d, pytest.raises(DeviceError, match="does not accept SPIR-V; compile for "
                                                                      "opencl"):
        d.load(made.code, entries)
    assert driver.made == []


def test_damaged_modules_do_not_reach_the_driver(install: Any) -> None:
    driver = install()
    made = modules_of(jobs()["tanh"][0].alone("f"))
    [(name, _, size, group)] = made.spec.entries
    with opencl.BACKEND.open() as d:
        with pytest.raises(DeviceError, match=f"opencl:0: the code of kernel '{name}': .*does not end"):
            d.load(made.code[:24], [KernelEntry(name, 0, 24, group)])
        with pytest.raises(DeviceError, match="opencl:0: the code has no kernel 'other'"):
            d.load(made.code, [KernelEntry("other", 0, size, group)])
    assert driver.made == []


def test_float64_where_the_device_has_it(install: Any) -> None:
    x = leaf("input", "x", (5,), f32)
    made = modules_of(Graph({"y": ops.cast(x, f64)}))
    entries = [KernelEntry(*e) for e in made.spec.entries]
    install(extensions="cl_khr_fp16")
    with opencl.BACKEND.open() as d, pytest.raises(Unsupported, match=r"opencl:0 .stand-in. has no "
                                                                      r"float64 .cl_khr_fp64."):
        d.load(made.code, entries)
    driver = install()
    with opencl.BACKEND.open() as d:
        d.load(made.code, entries)
    assert len(driver.made) == len(entries)


def test_vectors_and_shared_arrays_are_aligned() -> None:
    """Four neighbors are loaded at once only from where they may be: arrays that begin with a line."""
    x = leaf("input", "x", (64, 64), f32)
    made = modules_of(Graph({"y": ops.matmul(x, x)}))
    assert "OpLoad %f32x4" in made.text and "Aligned 16" in made.text
    shared = [line.split()[0] for line in made.text.split("\n") if line.endswith(" Workgroup")
              and "OpVariable" in line]
    assert shared
    for name in shared:
        assert f"OpDecorate {name} Alignment 64" in made.text


def test_products_are_not_contracted() -> None:
    """In every module, and of each its own mode: x * y + z has two roundings."""
    made = modules_of(jobs()["matmul"][0].alone("f"))
    assert made.text.count("ContractionOff") == len(made.spec.entries) > 0
