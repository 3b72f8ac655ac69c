"""CUDA C++ compiles with NVRTC and NVIDIA's assembler, without spills. The results of the text are tested in
test_gpu_opcodes.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ztorch as zt
from tests.cases.jobs import jobs
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.machines.rocm.machine import rendered
from ztorch.codegen import nvrtc, ptx
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, f32, i32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.runtime.load import open_artifact

pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
TARGET = TARGETS["cuda:c"]
IN_ONE_MODULE = replace(TARGET, one_module_per_kernel=False)


def through_nvrtc(text: str) -> str:
    return nvrtc.assemble(text, TARGET).rstrip(b"\0").decode()


def figures(code: str, chip: str = "sm_90") -> dict[str, tuple[int, int, int]]:
    return ptx.kernel_resources(ptx.cubin(code, chip)[1])


@pytest.mark.parametrize("d", ALL, ids=repr)
def test_every_opcode_is_accepted(d: DType) -> None:
    kernels = [kernel_for(opcode, d, 1, i32)[0] for opcode in opcodes_of(d)]
    text, actual = rendered(kernels, TARGET)
    assert len(figures(through_nvrtc(text))) == len(actual)


def test_ops_without_spills() -> None:
    some = sorted(jobs())[::12]
    made = compile_functions({f"f{k}": jobs()[n][0].alone(f"f{k}") for k, n in enumerate(some)}, IN_ONE_MODULE, "ops")
    taken = figures(through_nvrtc(made.text))
    assert len(taken) == len(made.spec.entries) > 40
    assert not any(spilled for _, spilled, _ in taken.values())


@pytest.mark.parametrize(("device", "chip"), [("cuda:c", "c"), ("cuda:c:sm_80", "sm_80")])
def test_a_model_is_exported(device: str, chip: str, tmp_path: Path) -> None:
    model = zt.Sequential([zt.Input((7,)), zt.layers.Dense(5, activation="gelu"), zt.layers.Dense(3)])
    with zt.settings.using(cubin=True):
        model.export(tmp_path / "model.zt", device=device, batch_size=4, loss="mse", optimizer="adam", train=True)
    made, = open_artifact(tmp_path / "model.zt").targets
    code = bytes(made.code)
    assert made.spec.arch == chip and len(made.spec.entries) > 5
    for name, at, size, *_ in made.spec.entries:
        text, end, machine_code = code[at:at + size].partition(b"\0")
        assert end and f".entry {name}(".encode() in text
        assert machine_code[:4] == (b"" if chip == "c" else b"\x7fELF")


def test_wide_accesses_and_plain_products_survive_the_compiler() -> None:
    """Four floats are one load, and a product and a sum are two instructions."""
    b = Builder("wide", i32)
    b.memory("x", f32, 4)
    b.memory("y", f32, 4, access="w")
    four = b.load("x", 0, lanes=4, align=16)
    parts = [b.extract(four, k) for k in range(4)]
    b.store("y", 0, b.join(b.add(b.mul(parts[0], parts[1]), parts[2]), *parts[1:]), align=16)
    code = through_nvrtc(rendered([b.kernel()], TARGET)[0])
    assert "ld.global.nc.v4.f32" in code and "st.global.v4.f32" in code
    assert "mul.rn.f32" in code and "fma" not in code


def test_a_refused_text_says_why() -> None:
    with pytest.raises(Unsupported, match=r'(?s)NVRTC refuses CUDA C\+\+.*kernels.cu\(1\).*"undeclared"'):
        nvrtc.assemble("int f() { return undeclared; }", TARGET)
