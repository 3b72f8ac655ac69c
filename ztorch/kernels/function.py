"""`zt.kernel`: a function of loops over elements, compiled for every device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch import dispatch
from ztorch.errors import KernelError, nearest
from ztorch.graph.hints import Hints
from ztorch.graph.op import leaf
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import NUMBERS, TileArithmetic
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.signature import Signature, parse_signature
from ztorch.kernels.source import Source, source_of
from ztorch.kernels.statements import StatementRules
from ztorch.kernels.thread_debug import with_threads
from ztorch.kernels.thread_functions import is_threads
from ztorch.kernels.tiles import LoopTensor

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# Whether kernels, also those that other kernels call, run as plain Python.
_debugging: ContextVar[bool] = ContextVar("debugging", default=False)


class KernelFunction:
    """A kernel: call it with tensors, arrays of NumPy, or the values of a model.

    Attributes:
        function: The Python function.
        max_steps: The largest number of iterations of loops that data ends, or None.
        signature: The types that calls are checked against, or None.
        hints: The hints for its schedule, or None.
    """

    def __init__(self, function: Callable[..., Any], max_steps: int | None = None,
                 signature: Signature | None = None, hints: Hints | None = None):
        self.source: Source = source_of(function)
        label = f"kernel {self.source.name}"
        if max_steps is not None and not (type(max_steps) is int and max_steps > 0):
            raise KernelError(f"{label}: max_steps={max_steps!r} must be an integer above 0")
        if not isinstance(hints, Hints | None):
            raise KernelError(f"{label}: hints={hints!r} must be such as zt.Hints(workgroup=128)")
        self.function = function
        self.max_steps = max_steps
        self.signature = signature
        self.hints = hints
        # A native function that records calls like earlier ones, or returns NotImplemented.
        self.recorder: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if _debugging.get():
            return self._plain(*args, **named)
        if self.recorder is not None:
            result = self.recorder(*args, **named)
            if result is not NotImplemented:
                return result
        result = dispatch.on_known_kernel(self, args, named)
        if result is not None:
            return result
        bound = self.bind(args, named)
        if any(isinstance(x, Value) for x in bound.values()):
            return self.trace(bound)
        return dispatch.on_kernel(self, bound, None, (args, named))

    def __repr__(self) -> str:
        return f"<kernel {self.source.name}>"

    def __reduce__(self) -> str:
        """Kernels are copied and pickled as functions are: by name."""
        return self.function.__qualname__

    @functools.cached_property
    def _plain(self) -> Callable[..., Any]:
        """The function that runs in plain Python, including its loops over threads."""
        return with_threads(self.function, self.source, lambda node: is_threads(self.source, node))

    @property
    def parameters(self) -> list[str]:
        """The names of its arguments."""
        return [*inspect.signature(self.function).parameters]

    def bind(self, args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, with defaults."""
        try:
            return self.source.signature(self.function, args, named)
        except TypeError as error:
            unknown = next((n for n in named if n not in self.parameters), None)
            hint = "" if unknown is None else nearest(unknown, self.parameters)
            raise KernelError(f"kernel {self.source.name}: {error}{hint}") from None

    def trace(self, arguments: dict[str, Any], numbers: Collection[str] = ()) -> Any:
        """The results of the kernel, as values of a graph.

        Args:
            arguments: Values, or numbers and tuples that are compiled in, by name.
            numbers: Names of values that represent Python numbers. Default: `()`.
        """
        with self.hints.scope(self.source.name) if self.hints else nullcontext():
            return self._translated(arguments, numbers)[0]

    def _translated(self, arguments: dict[str, Any], numbers: Collection[str]
                    ) -> tuple[Any, StatementRules]:
        sizes = self.signature.sizes(self.source.name, arguments) if self.signature else {}
        tensors = [x for x in arguments.values() if isinstance(x, Value)]
        arithmetic = TileArithmetic([x.dtype for x in tensors])
        t = StatementRules(self.source, arithmetic, (self.function,))
        t.max_steps = self.max_steps
        for name, x in arguments.items():
            value = LoopTensor(x, (), name in numbers) if isinstance(x, Value) else x
            t.env[name] = KernelVariable(value, fixed=f"{name} is an argument")
        result = t.function()
        parts = result if isinstance(result, tuple) else (result,)
        values = [t.arithmetic.tile(part).value for part in parts]
        if self.signature:
            self.signature.check_results(self.source.name, values, sizes)
        return (tuple(values) if isinstance(result, tuple) else values[0]), t

    def on(self, device: str) -> PlacedKernel:
        """The kernel on a device, also for arrays of NumPy.

        Args:
            device: Such as `"cpu"` or `"vulkan:0"`; `zt.devices()` lists them.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> @zt.kernel
            ... def double(x):
            ...     return x * 2
            >>> double.on("cpu").submit(np.arange(3.0)).result(timeout=60)
            array([0., 2., 4.])
        """
        return PlacedKernel(self, device)

    def grad(self, argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
        """The gradient of the kernel, which must return one number: the same as `zt.grad(kernel,
        argnums)`. Use `zt.vjp` for other kernels.

        Args:
            argnums: The argument, or the arguments, to differentiate with respect to. Default: `0`.

        Returns:
            A function that takes the kernel's arguments and returns the gradient: an array of the
            argument's shape, or a tuple of those.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> @zt.kernel
            ... def energy(x, k):
            ...     total = 0.0
            ...     for i in range(x.shape[0] - 1):
            ...         total += k[i] * (x[i + 1] - x[i]) ** 2.0
            ...     return total
            >>> energy.grad(argnums=1)(zt.tensor([0.0, 1.0, 3.0]), zt.tensor([1.0, 1.0]))
            tensor([1., 4.], dtype=float32, device='cpu')
        """
        result: Callable[..., Any] = dispatch.grad(self, argnums)
        return result

    def explain(self, *args: Any, **named: Any) -> str:
        """Describes how each loop runs: its iterations at once, or in order and why. For a kernel
        with hints, also describes the schedule of each compiled kernel, and the hints that it does
        not follow. `kernel.on(device).explain(...)` describes the schedules for a device.

        Args:
            *args: Arrays and numbers, as for a call.
            **named: Likewise.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> @zt.kernel
            ... def decay(x):
            ...     out = np.empty_like(x)
            ...     s = 0.0
            ...     for t in range(x.shape[0]):
            ...         s = s * 0.5 + x[t]
            ...         out[t] = s
            ...     return out
            >>> print(decay.explain(np.ones(8)))  # doctest: +ELLIPSIS
            line ...: for t in range(x.shape[0]):  # 8 iterations in order: s in one iteration ...
        """
        return "\n".join(self._explained(self.bind(args, named), None))

    def _explained(self, arguments: dict[str, Any], device: str | None) -> list[str]:
        values = {n: leaf("input", n, x.shape, str(x.dtype)) if hasattr(x, "shape") else x
                  for n, x in arguments.items()}
        lines = list(self._translated(values, ())[1].notes.values())
        if self.hints is not None or device is not None:
            result = self.trace(values)
            parts = result if isinstance(result, tuple) else (result,)
            lines += dispatch.schedules_of(self.source.name, parts, device)
        return lines

    def debug(self, *args: Any, **named: Any) -> Any:
        """Runs the function as plain Python on NumPy arrays, where breakpoints and prints work.

        Args:
            *args: Arrays and numbers.
            **named: Likewise.

        Returns:
            The result of the function.
        """
        token = _debugging.set(True)
        try:
            return self._plain(*[_plain(x) for x in args],
                               **{name: _plain(x) for name, x in named.items()})
        finally:
            _debugging.reset(token)


class PlacedKernel:
    """A kernel on one device."""

    def __init__(self, kernel: KernelFunction, device: str):
        self.kernel, self.device = kernel, device

    def __call__(self, *args: Any, **named: Any) -> Any:
        return dispatch.on_kernel(self.kernel, self.kernel.bind(args, named), self.device)

    def explain(self, *args: Any, **named: Any) -> str:
        """The text of `explain` of the kernel, and the schedule of each kernel on the device.

        Args:
            *args: Arrays and numbers, as for a call.
            **named: Likewise.
        """
        return "\n".join(self.kernel._explained(self.kernel.bind(args, named), self.device))

    def submit(self, *args: Any, **named: Any) -> Future[Any]:
        """Runs it in another thread.

        Args:
            *args: Arguments of the kernel.
            **named: Likewise.

        Returns:
            A future: `result(timeout=...)` waits for the result of the kernel.
        """
        return _threads().submit(self, *args, **named)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    return ThreadPoolExecutor(1, "ztorch kernels")


def _plain(x: Any) -> Any:
    return x if isinstance(x, (tuple, str, *NUMBERS)) or x is None else np.asarray(x)


def kernel(function: Callable[..., Any] | str | None = None, *, max_steps: int | None = None,
           hints: Hints | None = None) -> Any:
    """Makes a Python function of loops over elements a kernel: a decorator.

    The function is parsed, not run. Its loops become tensor operations: loops whose iterations are
    independent run at once, sums and extremes over loops are reductions, and sums of products are
    contractions. So a kernel has a gradient, fuses with adjacent ops, and runs on any device.

    Args:
        function: A function of arrays and numbers that uses `for`, `if`, `while`, arithmetic, and
            functions of `numpy` and `math`; or a signature, such as `"f32[b, n], f32[n] -> f32[b,
            n]"`, which calls are checked against. In it, a name means the same size everywhere.
        max_steps: The most iterations of its `while` loops, and of loops over rows or threads whose
            bounds are data. `None` allows no `while` that data ends, but in such rows and in
            threads. Default: `None`.
        hints: How it may be computed, such as `zt.Hints(workgroup=128)`: sizes that change speed,
            and results by rounding at most. Default: `None`.

    Returns:
        A `KernelFunction`.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.kernel("any[b, n], any[n], any[n] -> any[b, n]")
        ... def scale_shift(x, g, c):
        ...     out = np.empty_like(x)
        ...     for i, j in zt.grid(*x.shape):
        ...         out[i, j] = x[i, j] * g[j] + c[j]
        ...     return out
        >>> scale_shift(np.ones((2, 3)), np.arange(3.0), np.ones(3))
        array([[1., 2., 3.],
               [1., 2., 3.]])
    """
    if callable(function):
        return KernelFunction(function, max_steps, None, hints)
    signature = None if function is None else parse_signature(function)
    return lambda f: KernelFunction(f, max_steps, signature, hints)
