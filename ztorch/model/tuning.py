"""Models whose kernels are measured or predicted before compilation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.config import number
from ztorch.errors import ConfigError, unknown
from ztorch.model.exporting import ExportedNetwork
from ztorch.model.trace import trace
from ztorch.runtime.buckets import ROWS
from ztorch.runtime.devices import resolve

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel
    from ztorch.tune.kernel_times import FunctionTimes
    from ztorch.tune.report import TuningReport


class TunedNetwork(ExportedNetwork, abstract=True):
    """A network whose kernels can be measured."""

    _last_device = "cpu"  # of the last compile

    @checked
    def tune(self, device: str | None = None, *, batch_size: int | Sequence[int] | None = None,
             optimizer: Any = None, loss: Any = None, metrics: Any = None, dtype: Any = None,
             sizes: Any = None, threads: int | None = None, seconds: float = 60.0,
             again: bool = False, matmul_precision: str = "float32") -> TuningReport:
        """Measures schedules for the kernels of the model, and stores the fastest.

        The compiler has rules that choose how each kernel is computed: tiles, unrolling, the order
        of loops. This method tries alternatives on this machine and caches the faster ones for
        every later `compile`, in this process or another. Results differ at most by rounding.
        Ctrl-C stops it and keeps the measurements so far.

        Omitted arguments are those of the last `compile`, or its defaults.

        Args:
            device: "cpu", an instruction level, such as "cpu:avx2", or a device of this machine,
                such as "cuda:0". For a chip, such as "cuda:sm_90a", times are predicted by the
                performance model. Default: `None`, that of the last `compile`, or "cpu".
            batch_size: As in `compile`. Default: `None`.
            optimizer: As in `compile`. Default: `None`.
            loss: As in `compile`. Default: `None`.
            metrics: As in `compile`. Default: `None`.
            dtype: As in `compile`. Default: `None`.
            sizes: As in `compile`. Default: `None`.
            threads: As in `compile`. Default: `None`.
            seconds: Time limit of the measurements; kernels with the most work come first. Default:
                `60.0`.
            again: Whether to repeat known measurements. Default: `False`.
            matmul_precision: As in `compile`, which uses the measurements of its own precision.
                Default: `"float32"`.

        Returns:
            A TuningReport, which prints as a table of kernels.

        Raises:
            ConfigError: An argument is invalid, or there is no cache.
            Unsupported: Kernels of the device can neither be run here nor be predicted.

        Examples:
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> report = model.tune(batch_size=8, threads=1, seconds=0)
            >>> report.measured, report.left > 0
            (0, True)
        """
        from ztorch.compile.targeting import target_for  # imports the compiler
        from ztorch.tune.tuner import tune_functions

        seconds = number("tune(seconds=...)", seconds, least=0)
        traced = self._traced_as_compiled(
            batch_size=batch_size, dtype=dtype, sizes=sizes, optimizer=optimizer, loss=loss,
            metrics=metrics)
        place = resolve(device or self._last_device)
        target = target_for(place).with_precision(matmul_precision)
        return tune_functions(traced.functions, target, self.name, seconds, threads, again,
                              place.ordinal)

    @checked
    def explain(self, function: str = "predict", device: str | None = None, *,
                batch_size: int | Sequence[int] | None = None, optimizer: Any = None,
                loss: Any = None, metrics: Any = None, dtype: Any = None, sizes: Any = None,
                threads: int | None = None, measure: bool = False) -> FunctionTimes:
        """Explains a function of the model, kernel by kernel: schedules, fused ops and the reasons
        against more fusion, FLOPs, bytes, and the fraction of the peak speed.

        Omitted arguments are those of the last `compile`, or its defaults. `ztorch explain` also
        predicts kernels on GPUs.

        Args:
            function: `"predict"`, `"evaluate"`, `"train"` or another one. Default: `"predict"`.
            device: "cpu", an instruction level or a processor, such as "cpu:zen3". Default:
                `None`, that of the last `compile`, or "cpu".
            batch_size: As in `compile`. Default: `None`.
            optimizer: As in `compile`. Default: `None`.
            loss: As in `compile`. Default: `None`.
            metrics: As in `compile`. Default: `None`.
            dtype: As in `compile`. Default: `None`.
            sizes: As in `compile`. Default: `None`.
            threads: As in `compile`. Default: `None`.
            measure: Whether to run each kernel on this machine. Default: `False`.

        Returns:
            FunctionTimes, which prints as a table; `to_json()` returns data, `plot(path)` draws a
            roofline.

        Raises:
            ConfigError: There is no such function, or an argument is invalid.
            Unsupported: The device is not a CPU, or kernels are measured on another machine.

        Examples:
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((64,)), zt.layers.Dense(8, "relu")])
            >>> times = model.explain(batch_size=16)
            >>> times.kernels[0].layers, times.kernels[0].flops >= 2 * 16 * 64 * 8
            (('dense',), True)
        """
        traced = self._traced_as_compiled(
            batch_size=batch_size, dtype=dtype, sizes=sizes, optimizer=optimizer, loss=loss,
            metrics=metrics)
        return _explained(self.name, traced, function, device or self._last_device, threads,
                          measure)

    def explainer(self, device: str, threads: int | None,
                  **arguments: Any) -> Callable[[str, bool], FunctionTimes]:
        """A function that explains a program: `explain` as the network was compiled then. It does
        not keep the network alive.

        Args:
            device: The device of the program.
            threads: Its threads.
            **arguments: The arguments of `trace`.
        """
        network = weakref.ref(self)

        def explain(function: str, measure: bool) -> FunctionTimes:
            model = network()
            if model is None:
                raise ConfigError("the model of this program no longer exists; keep a reference to "
                                  "it, and call model.explain()")
            return _explained(model.name, trace(model, **arguments), function, device, threads,
                              measure)

        return explain

    def _traced_as_compiled(self, **options: Any) -> TracedModel:
        """The functions of the model, for arguments of `compile`; None means the last arguments."""
        before = {} if self._programs is None else self._programs.arguments
        arguments: dict[str, Any] = {
            name: before.get(name) if value is None else value
            for name, value in {**options, "loss_weights": None, "decode": None}.items()}
        return trace(self, arguments.pop("batch_size") or ROWS,
                     dtype_=arguments.pop("dtype") or self.policy, seed=None,
                     metrics=arguments.pop("metrics") or (),
                     decode=arguments.pop("decode") or False, **arguments)


def _explained(name: str, traced: TracedModel, function: str, device: str, threads: int | None,
               measure: bool) -> FunctionTimes:
    from ztorch.compile.targeting import target_for
    from ztorch.tune.explained import explain_function

    if function not in list(traced.functions):
        raise unknown("function", function, traced.functions)
    return explain_function(f"{function} of {name}", function, traced.functions[function],
                            target_for(resolve(device, must_be_local=measure)), measure, threads)
