"""The compiled functions of a program: their buffers, calls and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.errors import ConfigError, DataError
from ztorch.feed.adapter import DataAdapter
from ztorch.feed.call_pool import BorrowedCall, CallPool
from ztorch.runtime.buckets import BATCH, Buckets
from ztorch.runtime.spec import RESULTS, public_functions, score_of

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import LoadedProgram
    from ztorch.runtime.snapshot import Metadata


class NativeCalls:
    """The compiled functions of a program."""

    def __init__(self, executable: LoadedProgram, metadata: Metadata):
        self.executable = executable
        self.metadata = metadata
        self.name = metadata.name
        predict = executable.functions["predict"]
        rows = next(iter(predict.inputs.values())).shape[0]
        self.buckets = Buckets(metadata.axes or {BATCH: (rows,)}, metadata.whole_batches,
                               metadata.whole_axes, metadata.multiples)
        self.batch_size = self.buckets.batch_size  # maximum rows per call
        stateful = next((name.rpartition("/")[0] for name, state in executable.states.items()
                         if state.role == "memory"), "")
        self.adapter = DataAdapter.of(executable.functions, metadata, self.buckets, stateful)
        self.calls = CallPool(executable, self.buckets)

    @property
    def device(self) -> str:
        """The device on which this program runs."""
        return self.executable.device

    @property
    def recomputed(self) -> dict[str, tuple[str, ...]]:
        """The kernels that run a second time instead of storing their results, by function; for a
        `Checkpoint` layer or `memory_limit` of compile."""
        functions = public_functions(self.executable.spec.functions)
        return {name: f.recomputed for name, f in functions.items()}

    @property
    def metrics_names(self) -> list[str]:
        """The names of the scores that `evaluate` returns, in order."""
        return self.score_names("evaluate")

    def score_names(self, function: str) -> list[str]:
        """The names of the scores that a function computes, the loss first.

        Args:
            function: `"train"` or `"evaluate"`.
        """
        names = dict.fromkeys(map(score_of, self.need(function).outputs))
        return sorted(names, key=lambda name: name != "loss")

    def results(self, totals: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The metrics that are computed from totals over batches, by name: numbers, or arrays.

        Args:
            totals: The sum over all batches of each state of a metric, by name.
        """
        with self.borrow(RESULTS) as call:
            for name, total in totals.items():
                if name in call.inputs:  # a result may not need all sums of its metric
                    call.inputs[name][...] = total
            call()
            return {name: y.copy() if np.ndim(y) else y.item()
                    for name, y in call.outputs.items()}

    def borrow(self, function: str) -> BorrowedCall:
        """A native call, for a `with` block in which its buffers belong to the caller.

        Args:
            function: The name of a compiled function, such as `"predict"`.
        """
        return self.calls.borrow(function)

    def need(self, function: str) -> Any:
        """The spec of a function. Raises an error that says how to compile it if there is none.

        Args:
            function: `"train"` or `"evaluate"`.
        """
        spec = self.executable.functions.get(function)
        if spec is None:
            needs = "loss= and optimizer=" if function == "train" else "loss="
            lacks = "an optimizer" if "evaluate" in self.executable.functions else "a loss"
            raise ConfigError(f"program {self.name!r} cannot {function}: it was compiled without "
                              f"{lacks}; compile with {needs}, such as compile(..., "
                              "optimizer='adam', loss='mse')")
        return spec

    def need_one_batch(self, rows: int) -> None:
        """Raises an error if a batch does not hold all rows.

        Args:
            rows: The number of rows.
        """
        if rows > self.batch_size:
            raise DataError(f"x has {rows} rows, but this program is compiled for batches of "
                            f"{self.batch_size}; use fit, evaluate or predict for more")
