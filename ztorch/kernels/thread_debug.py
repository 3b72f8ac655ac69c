"""Runs the threads of a kernel as Python threads, one at a time, for debugging.

A thread runs until it waits for the others of its block; then the next thread runs. So prints and
breakpoints come in the same order each time. The body of a loop over `zt.threads` is turned into a
function with the same line numbers.
"""

from __future__ import annotations

import ast
import textwrap
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ztorch.errors import KernelError
from ztorch.kernels.source import Source

_current = threading.local()  # holds the kernel's thread that runs in this Python thread
_BODY, _RUN = "_zt_thread", "_zt_run_threads"


class KernelThread:
    """One thread of a block, while it runs.

    Attributes:
        thread: Its number in the block.
    """

    def __init__(self, block: _Block, thread: int):
        self.thread = thread
        self._block = block
        self._arrays = 0  # number of shared arrays that it has requested

    @property
    def epoch(self) -> int:
        """The number of barriers that its block has passed."""
        return self._block.epoch

    def shared(self, shape: Any, dtype: Any) -> Any:
        """The next shared array of the block."""
        arrays = self._block.arrays
        if self._arrays == len(arrays):
            arrays.append(unwritten_array(shape, dtype))
        self._arrays += 1
        return arrays[self._arrays - 1]

    def meet(self, x: Any) -> list[Any]:
        """Waits for all threads of the block. Returns the values that they passed."""
        return self._block.meet(self.thread, x)


def current_thread(function: str) -> KernelThread:
    """The kernel's thread that runs now. If there is none, raises an error with the function's
    name."""
    thread: KernelThread | None = getattr(_current, "thread", None)
    if thread is None:
        raise KernelError(f"{function} is for threads: use it in a loop over zt.threads(...) of a "
                          "kernel")
    return thread


class SharedArray(np.ndarray):
    """Shared memory that records which threads accessed which element since the last barrier."""

    # By element: the epoch of the last access, and the threads that accessed it in this epoch.
    writers: dict[Any, tuple[int, set[int]]]
    readers: dict[Any, tuple[int, set[int]]]

    def __getitem__(self, place: Any) -> Any:
        self._touch(place, False)
        return np.asarray(self)[place]

    def __setitem__(self, place: Any, x: Any) -> None:
        self._touch(place, True)
        np.asarray(self)[place] = x

    def _touch(self, place: Any, writes: bool) -> None:
        current = current_thread("shared memory")
        key = tuple(map(int, place)) if isinstance(place, tuple) else int(place)
        conflicting = [(self.writers, "written")] + ([(self.readers, "read")] if writes else [])
        for log, access in conflicting:
            epoch, threads = log.get(key, (current.epoch, set()))
            others = threads - {current.thread} if epoch == current.epoch else ()
            if others:
                raise KernelError(
                    f"race: thread {current.thread} {'writes' if writes else 'reads'} element "
                    f"{key} of shared memory, which thread {min(others)} has {access} since the "
                    "last barrier; put zt.barrier() between them, or use an atomic update")
        if not writes and key not in self.writers:
            raise KernelError(f"thread {current.thread} reads element {key} of shared memory, "
                              "which no thread has written")
        log = self.writers if writes else self.readers
        if key not in log or log[key][0] != current.epoch:
            log[key] = current.epoch, set()
        log[key][1].add(current.thread)


def unwritten_array(shape: Any, dtype: Any) -> SharedArray:
    """Shared memory that has not been written."""
    array = np.zeros(shape, dtype).view(SharedArray)
    array.writers, array.readers = {}, {}
    return array


class _Block:
    """The threads of one block, which run one at a time."""

    def __init__(self, number: int, size: int, body: Callable[[int, int], None]):
        self.number, self.body = number, body
        self.arrays: list[Any] = []
        self.passed: list[Any] = [None] * size  # values that threads pass to the next barrier
        self.exchanged: list[Any] = []  # values that were passed to the last barrier
        self.epoch = 0  # number of barriers so far
        self.waiting = [False] * size
        self.done = [False] * size
        self.errors: list[BaseException] = []
        self.semaphores = [threading.Semaphore(0) for _ in range(size)]
        self.back = threading.Semaphore(0)  # released when a thread waits or ends

    def run(self) -> None:
        workers = [threading.Thread(target=self._thread, args=(t,), daemon=True)
                   for t in range(len(self.semaphores))]
        for w in workers:
            w.start()
        while not all(self.done) and not self.errors:
            for t, done in enumerate(self.done):
                if not done and not self.errors:
                    self.semaphores[t].release()
                    self.back.acquire()
            if any(self.waiting) and any(self.done) and not self.errors:
                t = self.waiting.index(True)
                self.errors.append(KernelError(
                    f"thread {t} of block {self.number} waits at a barrier that thread "
                    f"{self.done.index(True)} does not come to; all threads of a block must"))
            self.epoch += 1
            self.exchanged, self.passed = self.passed, [None] * len(self.passed)
            self.waiting = [False] * len(self.waiting)
        if self.errors:
            error = self.errors[0]
            for t, w in enumerate(workers):  # threads that wait end, too
                self.semaphores[t].release()
                w.join()
            raise error

    def _thread(self, t: int) -> None:
        self.semaphores[t].acquire()
        _current.thread = KernelThread(self, t)
        try:
            if not self.errors:
                self.body(self.number, t)
        except BaseException as error:  # raised again by the caller's thread
            self.errors.append(error)
        self.done[t] = True
        self.back.release()

    def meet(self, t: int, x: Any) -> list[Any]:
        self.passed[t], self.waiting[t] = x, True
        self.back.release()
        self.semaphores[t].acquire()
        if self.errors:
            raise SystemExit  # ends this thread
        return self.exchanged


def run_threads(body: Callable[[Any, Any], None], blocks: Any, size: Any) -> None:
    """Runs a function for each thread, one block after the other."""
    def numbered(block: int, thread: int) -> None:
        body(_places(block, blocks), _places(thread, size))

    for block in range(np.prod(blocks)):
        _Block(block, int(np.prod(size)), numbered).run()


def _places(number: int, sizes: Any) -> Any:
    """The number, or the number along each axis if there are several."""
    return tuple(map(int, np.unravel_index(number, sizes))) if isinstance(sizes, tuple) else number


def with_threads(function: Callable[..., Any], source: Source,
                 is_threads: Callable[[ast.expr], bool]) -> Callable[..., Any]:
    """The function with loops over threads that Python can run; unchanged if it has none."""
    if not any(isinstance(s, ast.For) and is_threads(s.iter) for s in ast.walk(source.tree)):
        return function
    tree = ast.parse("\n".join(source.lines))
    [made] = tree.body
    assert isinstance(made, ast.FunctionDef) and isinstance(function, FunctionType)
    made.decorator_list = []
    free = function.__code__.co_freevars
    around = ast.parse(f"def around({', '.join((*free, _RUN))}):\n    return {made.name}")
    outer = around.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, _Threads(is_threads).visit(made))
    ast.increment_lineno(around, source.first_line - 1)
    ast.fix_missing_locations(around)
    names: dict[str, Any] = {}
    exec(compile(around, source.file, "exec"), function.__globals__, names)
    cells = [c.cell_contents for c in function.__closure__ or ()]
    debugged = names["around"](*cells, run_threads)
    debugged.__defaults__, debugged.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    result: Callable[..., Any] = debugged
    return result


class _Threads(ast.NodeTransformer):
    """Turns the body of each loop over threads into a function."""

    def __init__(self, is_threads: Callable[[ast.expr], bool]):
        self.is_threads = is_threads

    def visit_For(self, node: ast.For) -> Any:
        if not self.is_threads(node.iter) or not isinstance(node.iter, ast.Call):
            return self.generic_visit(node)
        assert isinstance(node.target, ast.Tuple)
        first, second = map(ast.unparse, node.target.elts)
        made = ast.parse(textwrap.dedent(f"""
            def {_BODY}(_zt_block, _zt_number):
                {first} = _zt_block
                {second} = _zt_number
            {_RUN}({_BODY}, *())
            """)).body
        body, call = made
        assert isinstance(body, ast.FunctionDef) and isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        body.body += node.body
        call.value.args[1:] = node.iter.args
        for part in (body, call):
            for inner in ast.walk(part):
                if not hasattr(inner, "lineno") or inner in (
                        body, *body.body[:2], call, call.value):
                    ast.copy_location(inner, node)
        return [body, call]
