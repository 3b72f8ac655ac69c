"""Our SPIR-V assembler beside Khronos' own, and our modules before their validator."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cases.covering import full, pairs, share
from tests.cases.jobs import composed, jobs
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.cases.vectors import loads, stores
from tests.cases.zoo import BATCH, small
from tests.codegen.spirv_grammar import HEADERS, VENDORED, read
from ztorch.backends import spirv as modules
from ztorch.codegen.spirv import assemble, grammar
from ztorch.codegen.targets import TARGETS
from ztorch.compile.device_code import device_code
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import ALL, DType, boolean, i32
from ztorch.errors import ZtorchError
from ztorch.ir.kernel import Kernel
from ztorch.lower.locations import Location
from ztorch.lower.plan import KernelStep, Plan

VULKAN = TARGETS["vulkan"].on_device({"subgroup": 8, "max_buffers": 64})
OPENCL = TARGETS["opencl:spirv"]
# A target, with the name of its rules in Khronos' tools.
FLAVORS = {"vulkan": (VULKAN, "vulkan1.1"), "opencl": (OPENCL, "opencl2.0")}
both = pytest.mark.parametrize("flavor", FLAVORS)
tools = pytest.mark.skipif(not (shutil.which("spirv-as") and shutil.which("spirv-val")),
                           reason="the package spirv-tools is not installed")


def texts_of(kernels: list[Kernel], flavor: str = "vulkan") -> list[str]:
    """The module of each kernel."""
    plans = {}
    for k, kernel in enumerate(kernels):
        places = tuple(Location("inputs", at, m.size * m.dtype.bytes)
                       for at, m in enumerate(kernel.memories))
        step = KernelStep(kernel, places, tuple(m.access != "r" for m in kernel.memories), 0.0)
        plans[f"k{k}"] = Plan(f"k{k}", [], [], [step], 0, [])
    return _split(device_code(plans, FLAVORS[flavor][0], Watch()).text)


def _split(text: str) -> list[str]:
    first = text[:text.index("\n") + 1]
    assert first in ("OpCapability Shader\n", "OpCapability Kernel\n")
    return [first + part for part in text.split(first)[1:]]


def agree_with_khronos(texts: list[str], folder: Path, flavor: str = "vulkan",
                       valid: bool = True) -> None:
    """The same words as spirv-as makes, which spirv-val accepts."""
    target, rules = FLAVORS[flavor]
    for number, text in enumerate(texts):
        (folder / f"{number}.spvasm").write_text(text)
    (folder / "each.sh").write_text(
        "cd $(dirname $0)\n" + "".join(
            f"spirv-as --target-env {rules} {n}.spvasm -o {n}.spv || exit 1\n"
            + (f"spirv-val --target-env {rules} {n}.spv || exit 1\n" if valid else "")
            for n in range(len(texts))))
    done = subprocess.run(["sh", str(folder / "each.sh")], capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    for number, text in enumerate(texts):
        assert assemble(text, target) == (folder / f"{number}.spv").read_bytes(), text


@tools
@pytest.mark.parametrize(("flavor", "d"), pairs([*FLAVORS], ALL), ids=str)
def test_every_opcode(flavor: str, d: DType, tmp_path: Path) -> None:
    texts = texts_of([kernel_for(o, d, 1, i32)[0] for o in opcodes_of(d)], flavor)
    assert len(texts) > 5
    agree_with_khronos(texts, tmp_path, flavor)


@tools
@both
def test_several_together(flavor: str, tmp_path: Path) -> None:
    kernels = [loads(d, lanes) for d in ALL if d is not boolean for lanes in (2, 4)]
    kernels += [stores(d, aligned) for d in ALL if d is not boolean for aligned in (True, False)]
    agree_with_khronos(texts_of(kernels, flavor), tmp_path, flavor)


# The driver here takes more of Vulkan's modules than the rules allow; OpenCL's it does not take at all.
QUICK = ("matmul", "softmax'", "conv", "sum'", "where", "take'")
OTHERS = [op for k, op in enumerate(jobs()) if op not in QUICK and (full() or not composed(op) or k % 3 == 0)]
PARTS = [QUICK, *(OTHERS[k::12] for k in range(12))]


@tools
@pytest.mark.parametrize(("flavor", "part"), pairs([*FLAVORS], range(len(PARTS)), [(f, 0) for f in FLAVORS]))
def test_kernels_of_ops(flavor: str, part: int, tmp_path: Path) -> None:
    some = [job for op in PARTS[part] for job in share(jobs()[op], [*FLAVORS].index(flavor), 4)]
    graphs = {f"j{k}": job.alone(f"j{k}") for k, job in enumerate(some)}
    made = compile_functions(graphs, FLAVORS[flavor][0], "ops")
    agree_with_khronos(_split(made.text), tmp_path, flavor)


@tools
@pytest.mark.parametrize("name", ["digits_mlp", "text_classifier"])
def test_kernels_of_models(name: str, tmp_path: Path) -> None:
    recipe = small(name)
    traced = recipe.model.trace(BATCH, loss=recipe.loss, metrics=recipe.metrics, optimizer="adam")
    made = compile_functions(traced.functions, OPENCL, name)
    agree_with_khronos(_split(made.text), tmp_path, "opencl")


def test_modules_declare_the_functions_that_kernels_use() -> None:
    graphs = {"j": jobs()["softmax"][0].alone("j")}
    plain = compile_functions(graphs, VULKAN.on_device({"subgroup": 0}), "ops")
    shuffled = compile_functions(graphs, VULKAN, "ops")
    one = [modules.requirements(plain.code[at:at + size]) for _, at, size, _ in plain.spec.entries]
    other = [modules.requirements(shuffled.code[at:at + size]) for _, at, size, _ in shuffled.spec.entries]
    assert not any(65 in n.capabilities for n in one) and any(65 in n.capabilities for n in other)
    launched = {x.entry: len(x.places) for f in plain.spec.functions.values() for x in f.launches}
    assert {k: n.bindings for k, n in enumerate(one)} == launched


@pytest.mark.parametrize("code", [b"", b"abc", b"\x03\x02#\x07" + b"\0" * 12,
                                  assemble("OpCapability Shader")[:-4],
                                  assemble("OpCapability Shader") + b"\0\0\0\0",
                                  assemble("OpCapability Shader") + b"\x11\0\xff\xff"])
def test_damaged_modules_are_detected(code: bytes) -> None:
    with pytest.raises(ValueError, match=r"module|does not end"):
        modules.requirements(code)


# -- the language -----------------------------------------------------------------------------------

EVERYTHING = r'''
; a comment; with a semicolon
OpCapability Shader   ; and one after
OpCapability Int64
OpCapability Float64
OpExtension "SPV_KHR_8bit_storage"
%set = OpExtInstImport "GLSL.std.450"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "a name; with \"quotes\" and \\" %a %b_1
OpExecutionMode %main LocalSize 8 0x2 1
OpSource GLSL 450
OpName %main ""
OpName %b_1 "abc"
OpName %a "abcd"
OpDecorate %a BuiltIn WorkgroupId
OpMemberDecorate %s 3 Offset 16
OpDecorate %q NonWritable
%void = OpTypeVoid
%f32 = OpTypeFloat 32
%f64 = OpTypeFloat 64
%f16 = OpTypeFloat 16
%i32 = OpTypeInt 32 1
%u32 = OpTypeInt 32 0
%i64 = OpTypeInt 64 1
%u64 = OpTypeInt 64 0
%i8 = OpTypeInt 8 1
%s = OpTypeStruct %f32 %f64
%7 = OpTypeFunction %void %f32
%c1 = OpConstant %f32 1.5
%c2 = OpConstant %f32 -0.1
%c3 = OpConstant %f64 1e-300
%c4 = OpConstant %f32 0x1.8p+1
%c5 = OpConstant %f32 !0x7fc00001
%c6 = OpConstant %f64 !1 !0x7ff80000
%c7 = OpConstant %i32 -7
%c8 = OpConstant %u32 4294967295
%c9 = OpConstant %i64 -7
%c10 = OpConstant %u64 0xFFFFFFFFFFFFFFFF
%c11 = OpConstant %i8 -7
%c12 = OpConstant %f16 !0x3555
%main = OpFunction %void Inline|Pure %7
%l = OpLabel
%x = OpLoad %f32 %a Volatile|Aligned 4
%y = OpLoad %f32 %a
OpStore %a %y Aligned 16
%z = OpExtInst %f32 %set FClamp %x %y %x
%p = OpPhi %f32 %x %l %y %l
OpLoopMerge %e %n DependencyLength 5
OpBranchConditional %k %l %e 1 2
OpReturn
OpFunctionEnd
'''


@tools
def test_all_kinds_of_operands(tmp_path: Path) -> None:
    agree_with_khronos([EVERYTHING], tmp_path, valid=False)


@pytest.mark.parametrize(("line", "says"), [
    ("OpFad %1 %2", "no instruction OpFad; did you mean 'OpFAdd'?"),
    ("OpFAdd %1 %2 %3", "has a result"),
    ("%1 = OpStore %2 %3", "has no result"),
    ("%1 = OpFAdd %2 %3", "an operand is missing"),
    ("%1 = OpFAdd %2 %3 %4 %5", "too many operands, from '%5' on"),
    ("%1 = OpFAdd %2 3 %4", "'3' is not an id"),
    ("%1 = OpFAdd %2 %a.b %4", "letters, digits and _"),
    ("%1 = OpFAdd", "'nothing' is not an id"),
    ("OpCapability Shade", "Capability has no Shade; did you mean 'Shader'?"),
    ("%1 = OpTypeInt 32 x", "'x' is not a number"),
    ("%1 = OpTypeInt 4294967296 0", "does not fit 32 bits"),
    ("%1 = OpConstant %2 3", "must be a numeric type that is declared above"),
    ('OpExtension "abc', "a string does not end"),
    ("OpExtension abc", 'is not a "string"'),
    ("%1 = OpExtInst %2 %3 Sqrt %4", "no instruction Sqrt in that set"),
])
def test_errors_name_the_line(line: str, says: str) -> None:
    with pytest.raises(ZtorchError) as error:
        assemble("OpCapability Shader\n\n" + line)
    assert says in str(error.value) and "line 3" in str(error.value)
    assert str(error.value).endswith(line.strip())


@pytest.mark.skipif(not HEADERS.is_dir(), reason="the package spirv-headers is not installed")
def test_the_grammar_is_khronos_own() -> None:
    """Of a newer package only the common part must be equal."""
    published, ours = read(HEADERS), json.loads(gzip.decompress(VENDORED.read_bytes()))
    for part in ("instructions", "sets", "composites"):
        assert published[part].keys() >= ours[part].keys()
        assert {k: published[part][k] for k in ours[part]} == ours[part]
    for kind, rows in ours["enums"].items():
        assert {k: published["enums"][kind][k] for k in rows} == rows


def test_the_grammar_ships_with_its_license() -> None:
    notice = (VENDORED.parent / "README.md").read_text()
    assert "Khronos Group" in notice and "Permission is hereby granted" in notice
    assert len(grammar().forms) > 400
