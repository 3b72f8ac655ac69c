"""Runs the code rendered for AMD's GPUs on the CPU, thread by thread: the same IR, and the same C++;
CUDA's C++ too.

Of the IR only the machine is exchanged: memories lose their spaces, the frame its calling convention,
and the intrinsics are functions of `workgroups.c`, where each thread is a coroutine. Arithmetic, control
flow, addresses, barriers and exchanges are the rendered text's own.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.machines.rocm import tensor
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import Target
from ztorch.ir.kernel import Grid, Kernel
from ztorch.lower.passes import decompose, launched

HERE = Path(__file__).parent
FOLDER = Path(tempfile.mkdtemp(prefix="zt_rocm_"))
INTRINSICS = {
    **{f"{kind}.id.{axis}": "i32 ()" for kind in ("workgroup", "workitem") for axis in "xyz"},
    "s.barrier": "void ()", "ds.bpermute": "i32 (i32, i32)", "ds.swizzle": "i32 (i32, i32)",
    "mbcnt.lo": "i32 (i32, i32)", "mbcnt.hi": "i32 (i32, i32)"}


def compiler(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"needs a compiler: {' or '.join(names)}")


@functools.cache
def workgroups() -> ctypes.CDLL:
    path = FOLDER / "workgroups.so"
    subprocess.run([compiler("cc", "gcc", "clang"), "-O2", "-shared", "-fPIC", "-o", path,
                    HERE / "workgroups.c", "-lm"], check=True)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.zt_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                  ctypes.c_void_p, ctypes.c_int]
    library.zt_matrices(tensor.ROWS)
    return library


WRONG = {1: "threads met in part only", 2: "too many threads",
         3: "lanes that ought to have the same part of a matrix have not",
         4: "a float32 of too many bits"}


class Hosted:
    """Kernels that can be launched here, by name: where each begins, and how many arguments it has."""

    def __init__(self, kernels: dict[str, tuple[int, int]], wave: int, kept: Any):
        self.kernels, self.wave, self.kept = kernels, wave, kept

    def launch(self, name: str, grid: Sequence[int], block: Sequence[int],
               pointers: Sequence[int]) -> None:
        address, count = self.kernels[name]
        assert count == len(pointers), f"{name} has {count} arguments, not {len(pointers)}"
        three = ctypes.c_int64 * 3
        arguments = (ctypes.c_void_p * max(1, count))(*pointers)
        code = workgroups().zt_launch(address, arguments, three(*grid), three(*block), self.wave)
        assert code == 0, f"{name}: {WRONG[code]}"


# -- IR --------------------------------------------------------------------------------------------

KERNEL = re.compile(r"^define amdgpu_kernel void @(\w+)\((.*?)\) #\d+ !reqd_work_group_size !\d+ \{\nentry:$",
                    re.M)
PARAMETER = re.compile(r"ptr addrspace\(1\) noundef align 256 (%m\d+)")


def host_ir(text: str) -> tuple[str, dict[str, int]]:
    """The text with this host for its machine, and the arguments of each kernel."""
    kernels: dict[str, int] = {}

    def entry(match: re.Match) -> str:
        names = PARAMETER.findall(match[2])
        assert len(names) == match[2].count("ptr"), match[0]
        kernels[match[1]] = len(names)
        lines = [f"define void @{match[1]}(ptr %given) #0 {{", "entry:"]
        for k, name in enumerate(names):
            lines += [f"  %given{k} = getelementptr ptr, ptr %given, i64 {k}",
                      f"  {name} = load ptr, ptr %given{k}"]
        return "\n".join(lines)

    text = KERNEL.sub(entry, text)
    text = re.sub(r"^@([\w.]+) = internal addrspace\(3\) global (.*) poison, align 32$",
                  r"@\1 = global \2 zeroinitializer, align 32", text, flags=re.M)
    text = re.sub(r"(ptr) addrspace\(\d\)", r"\1", text)
    text = re.sub(r", addrspace\(5\)$", "", text, flags=re.M)
    text = tensor.hosted(re.sub(r"^(target|attributes|!).*\n", "", text, flags=re.M))
    used = sorted(set(re.findall(r"@llvm\.amdgcn\.([a-z.]+)", text)))
    for name in used:
        text = text.replace(f"@llvm.amdgcn.{name}(", f"@zt_{name.replace('.', '_')}(")
    declared = []
    for name in used:
        result, _, arguments = INTRINSICS[name].partition(" ")
        declared.append(f"declare {result} @zt_{name.replace('.', '_')}{arguments}")
    assert "amdgcn" not in text and "addrspace" not in text, "something of the GPU is left"
    return "\n".join([text, *declared, 'attributes #0 = { nounwind "no-builtins" }']), kernels


@functools.lru_cache(maxsize=64)
def hosted_ir(text: str, wave: int) -> Hosted:
    from ztorch.codegen.llvm import binding

    llvm = binding()
    library = workgroups()
    for name in (*INTRINSICS, "matrix"):
        symbol = f"zt_{name.replace('.', '_')}"
        llvm.add_symbol(symbol, ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value)
    rewritten, kernels = host_ir(text)
    module = llvm.parse_assembly(rewritten)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=0)
    module.data_layout = str(machine.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes.run(module, llvm.create_pass_builder(machine, options))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return Hosted({n: (engine.get_function_address(n), k) for n, k in kernels.items()}, wave,
                  (engine, module))


# -- C++ -------------------------------------------------------------------------------------------

SIGNATURE = re.compile(r"^void (\w+)\((.*)\) \{$", re.M)
SHARED = "".join(f"""
extern "C" int zt_{kind}_id_{axis}();""" for kind in ("workgroup", "workitem") for axis in "xyz") + """
#define __global__
#define __device__
#define __shared__ static
extern "C" void zt_s_barrier();
extern "C" int zt_ds_bpermute(int, int);
extern "C" unsigned zt_mbcnt_lo(unsigned, unsigned), zt_mbcnt_hi(unsigned, unsigned);
"""
HIP = SHARED + """
#define amdgpu_flat_work_group_size(least, most)
#define __builtin_amdgcn_fence(order, scope) __atomic_signal_fence(order)
#define __builtin_amdgcn_s_barrier zt_s_barrier
#define __builtin_amdgcn_ds_bpermute zt_ds_bpermute
#define __builtin_amdgcn_mbcnt_lo zt_mbcnt_lo
#define __builtin_amdgcn_mbcnt_hi zt_mbcnt_hi
""" + "".join(f"""
#define __builtin_amdgcn_{kind}_id_{axis} zt_{kind}_id_{axis}""" for kind in ("workgroup", "workitem") for axis in "xyz")
CUDA = SHARED + """
#include <cmath>
#include <cstring>
using std::fabs, std::rint, std::floor, std::ceil, std::trunc, std::sqrt, std::fma;
#define __launch_bounds__(...)
#define __syncthreads zt_s_barrier
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __fsqrt_rn(float a) { return std::sqrt(a); }
static int __float2int_rz(float a) { return a != a ? 0 : a >= 0x1p31f ? 2147483647 : a <= -0x1p31f ? -2147483647 - 1 : int(a); }
static unsigned __float2uint_rz(float a) { return !(a > 0) ? 0 : a >= 0x1p32f ? ~0u : unsigned(a); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
struct { struct { operator int() { return zt_workgroup_id_x(); } } x; struct { operator int() { return zt_workgroup_id_y(); } } y;
         struct { operator int() { return zt_workgroup_id_z(); } } z; } blockIdx;
struct { struct { operator int() { return zt_workitem_id_x(); } } x; struct { operator int() { return zt_workitem_id_y(); } } y;
         struct { operator int() { return zt_workitem_id_z(); } } z; } threadIdx;
template <typename T> T __shfl_xor_sync(unsigned who, T x, int mask) {
  if (who != ~0u) throw "some of the threads only";
  int lane = zt_mbcnt_lo(~0u, 0), words[2] = {0, 0};
  memcpy(words, &x, sizeof x);
  for (unsigned k = 0; k < (sizeof x + 3) / 4; k++) words[k] = zt_ds_bpermute((lane ^ mask) * 4, words[k]);
  memcpy(&x, words, sizeof x);
  return x;
}
template <typename T> T atomicAdd(T *p, T x) { T old = *p; *p = old + x; return old; }
template <typename T> T atomicMin(T *p, T x) { T old = *p; if (x < old) *p = x; return old; }
template <typename T> T atomicMax(T *p, T x) { T old = *p; if (x > old) *p = x; return old; }
template <typename T> T atomicExch(T *p, T x) { T old = *p; *p = x; return old; }
template <typename T> T atomicCAS(T *p, T e, T x) { T old = *p; if (old == e) *p = x; return old; }
"""


@functools.lru_cache(maxsize=64)
def hosted_cpp(text: str, wave: int) -> Hosted:
    workgroups()
    parts, kernels = [CUDA if "__launch_bounds__" in text else HIP, text], {}
    for name, parameters in SIGNATURE.findall(text):
        types = [p.rpartition("*")[0] for p in parameters.split(", ") if p]
        kernels[name] = len(types)
        given = ", ".join(f"({t}*)given[{k}]" for k, t in enumerate(types))
        parts.append(f"namespace zt {{ extern \"C\" void given_{name}(void **given) "
                     f"{{ {name}({given}); }} }}")
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    (folder / "kernels.cpp").write_text("\n".join(parts))
    done = subprocess.run(
        [compiler("clang++", "g++"), "-std=c++17", "-O0", "-w", "-ffp-contract=off", "-shared", "-fPIC",
         "-o", "kernels.so", "kernels.cpp", FOLDER / "workgroups.so"], cwd=folder, capture_output=True,
        text=True)
    assert not done.returncode, done.stderr
    library = ctypes.CDLL(str(folder / "kernels.so"))
    return Hosted({n: (ctypes.cast(library[f"given_{n}"], ctypes.c_void_p).value or 0, k)
                   for n, k in kernels.items()}, wave, library)


# -- kernels by themselves -------------------------------------------------------------------------


def rendered(kernels: Sequence[Kernel], target: Target) -> tuple[str, list[tuple[str, Kernel, Grid]]]:
    """One module of kernels, and of each its symbol, what it became and its launch."""
    words = renderer(target)
    made, result = [], []
    for k, kernel in enumerate(kernels):
        flat, grid = launched(kernel)
        ready = decompose(flat, words.supports, target.name)
        made.append({**words.kernel(ready), "symbol": f"{kernel.name}_{k}"})
        result.append((made[-1]["symbol"], decompose(kernel, words.supports, target.name), grid))
    return words.frame(kernels=made, limits=target.limits.grid, chip=target.chip,
                       **dict(target.frame_data)), result


def aligned(array: np.ndarray, align: int) -> np.ndarray:
    """A copy at an address that is a multiple of `align`, as a device's buffers are."""
    room = np.zeros(array.nbytes + align, np.uint8)
    start = -room.ctypes.data % align
    copy = room[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def run(kernels: Sequence[Kernel], buffers: Sequence[Mapping[str, np.ndarray]], target: Target,
        machine: Any = None) -> list[Kernel]:
    """Runs each kernel on its buffers, in place; what each was in the target's words. `machine` makes
    something with a `launch` of text and target, in place of this one."""
    text, result = rendered(kernels, target)
    grid = target.limits.grid
    assert grid is not None
    hosted = machine(text, target) if machine else (
        hosted_ir if target.template_suffix == "ll" else hosted_cpp)(text, grid.subgroup or 64)
    for (symbol, kernel, size), held in zip(result, buffers, strict=True):
        arrays = [held[m.name] for m in kernel.memories if m.space == "global"]
        near = [aligned(a, grid.buffer_align) for a in arrays]
        hosted.launch(symbol, size, kernel.workgroup, [a.ctypes.data for a in near])
        for array, a in zip(arrays, near, strict=True):
            array[...] = a
    return [kernel for _, kernel, _ in result]
