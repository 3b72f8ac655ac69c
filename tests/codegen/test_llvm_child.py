"""The child that runs LLVM for foreign machines: answers, failures, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ztorch.codegen import llvm, llvm_child
from ztorch.codegen.elf.object import EM_AARCH64, read_object
from ztorch.codegen.llvm import MachineOptions
from ztorch.codegen.llvm_child import object_file_in_child
from ztorch.errors import ZtorchError

ROOT = Path(__file__).parents[2]
ARM = MachineOptions("neon", "aarch64-unknown-linux-gnu", "generic", ("neon",), 1)
AMD = MachineOptions("rocm:gfx1100", "amdgcn-amd-amdhsa", "gfx1100", (), 1)
# The chip has no such instruction, so LLVM aborts the process.
UNSELECTABLE = """declare <4 x float> @llvm.amdgcn.mfma.f32.4x4x1f32(float, float, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @broken(ptr addrspace(1) %p) {
  %x = call <4 x float> @llvm.amdgcn.mfma.f32.4x4x1f32(float 1.0, float 1.0,
    <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  store <4 x float> %x, ptr addrspace(1) %p
  ret void
}
"""


def module(number: int) -> str:
    return f"define i32 @number() {{ ret i32 {number} }}"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    llvm_child._end()
    yield
    llvm_child._end()


def pid() -> int:
    assert llvm_child._child is not None
    return llvm_child._child.process.pid


def alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(number: int) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(500):
        if not alive(number):
            return True
        time.sleep(0.01)
    return False


def test_the_object_equals_that_of_this_process_and_the_child_is_kept() -> None:
    first = object_file_in_child(module(1), ARM)
    child = pid()
    assert read_object(first).machine == EM_AARCH64
    assert first == llvm.object_file(module(1), ARM)
    assert object_file_in_child(module(2), ARM) == llvm.object_file(module(2), ARM) != first
    assert object_file_in_child(module(1), AMD) == llvm.object_file(module(1), AMD)
    assert pid() == child


def test_bad_text_is_an_error_and_the_child_is_kept() -> None:
    with pytest.raises(ZtorchError, match=r"(?s)LLVM refused the rendered text for neon.*expected"):
        object_file_in_child("define i32 @f() { ret nonsense }", ARM)
    child = pid()
    assert object_file_in_child(module(1), ARM)[:4] == b"\x7fELF" and pid() == child


def test_a_large_module_fits_through_the_pipes() -> None:
    functions = [f"define i32 @f{k}() {{ ret i32 {k} }}" for k in range(1000)]
    text = "\n".join([f"; {'x' * 300_000}", *functions])
    made = object_file_in_child(text, ARM)
    assert made == llvm.object_file(text, ARM) and len(made) > 1 << 16


def test_a_module_that_aborts_llvm_is_an_error_that_names_it() -> None:
    with pytest.raises(ZtorchError, match=r"for rocm:gfx1100 \(module with broken\): LLVM ERROR"):
        object_file_in_child(UNSELECTABLE, AMD)
    assert object_file_in_child(module(1), ARM)[:4] == b"\x7fELF"


def test_a_killed_child_is_replaced() -> None:
    first = object_file_in_child(module(1), ARM)
    child = pid()
    os.kill(child, signal.SIGKILL)
    assert ends(child)
    assert object_file_in_child(module(1), ARM) == first and pid() != child


def test_a_child_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    object_file_in_child(module(1), ARM)
    child = pid()
    monkeypatch.setattr(llvm_child, "MAX_SECONDS", 0.2)
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(ZtorchError, match=r"for neon \(module with number\): it was killed, after 0.2 s"):
        object_file_in_child(module(2), ARM)
    assert not alive(child)
    monkeypatch.undo()
    assert object_file_in_child(module(2), ARM) == llvm.object_file(module(2), ARM)


def test_a_child_compiles_so_many_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_child, "MAX_MODULES", 2)
    children = []
    for k in range(4):
        assert object_file_in_child(module(k), ARM) == llvm.object_file(module(k), ARM)
        children.append(pid())
    assert children[0] == children[1] != children[2] == children[3]
    assert not alive(children[0])


def test_an_interrupt_between_request_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that nothing read is never taken for that of the next module."""
    object_file_in_child(module(1), ARM)
    with monkeypatch.context() as patch:
        patch.setattr(llvm_child, "_read", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            object_file_in_child(module(2), ARM)
    assert object_file_in_child(module(3), ARM) == llvm.object_file(module(3), ARM)


def test_threads_share_the_child() -> None:
    with ThreadPoolExecutor(8) as pool:
        objects = list(pool.map(lambda k: object_file_in_child(module(k), ARM), range(40)))
    assert objects == [llvm.object_file(module(k), ARM) for k in range(40)]


def test_pipes_and_processes_do_not_pile_up() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    object_file_in_child(module(1), ARM)
    before = open_files()
    for _ in range(3):
        llvm_child._end()
        object_file_in_child(module(1), ARM)
    assert open_files() == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert str(pid()) in children and all(alive(int(c)) for c in children)


PARENT = """
import os, sys, time
from ztorch.codegen import llvm_child
from ztorch.codegen.llvm import MachineOptions
arm = MachineOptions("neon", "aarch64-unknown-linux-gnu", "generic", ("neon",), 1)
text = "define i32 @one() { ret i32 1 }"
first = llvm_child.object_file_in_child(text, arm)
print(llvm_child._child.process.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_it_ends_with_its_parent(end: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PARENT + end], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.stderr == ""
    assert ends(int(done.stdout))


def test_a_forked_process_has_its_own_child() -> None:
    """And keeps none of its parent's: that ends with the parent, though the fork lives on."""
    fork = """
ready, done = os.pipe()
if os.fork() == 0:
    assert llvm_child.object_file_in_child(text, arm) == first
    print(llvm_child._child.process.pid, flush=True)
    os.close(1)
    os.write(done, b"1")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
print("parent", llvm_child.object_file_in_child(text, arm) == first, flush=True)
os._exit(0)
"""
    # It is not waited for: the fork holds the end of standard error until it is killed.
    parent = subprocess.Popen([sys.executable, "-c", PARENT + fork], cwd=ROOT,
                              stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert parent.stdout is not None
        own, forks, said = parent.stdout.read().splitlines()
        assert parent.wait() == 0 and said == "parent True" and own != forks
        assert ends(int(own)) and alive(int(forks))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
