"""A network that finds or compiles the program for a call. Threads may call it at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ztorch.model.compiled_network import CompiledNetwork
from ztorch.model.programs import ModelPrograms, changed_since, not_compiled

if TYPE_CHECKING:
    from ztorch.program.program import Program


class PreparedNetwork(CompiledNetwork, abstract=True):
    """A network whose programs are ready when a method needs them."""

    def running(self, function: str, batch_size: int | None = None,
                weighted: Mapping[str, int] | None = None) -> AbstractContextManager[Program]:
        """The program that runs a function on batches of this size, for a `with` block. A model
        that is not compiled is compiled to predict."""
        with self.preparing:
            programs = self._programs_for(function)
        return programs.running(function, batch_size, weighted or {}, self.sizes_beside)

    def ready(self) -> Program | None:
        """The program of `compile`, if all that a prediction needs are the model's newest weights;
        else None. A service calls it for each request, so it takes no lock."""
        programs = self._programs
        if programs is None or self._late is not None or not programs.fit(self):
            return None
        program = programs.compiled
        if programs.training is not program:  # a callback asks
            return None
        program.take_weights()
        return program

    def _programs_for(self, function: str) -> ModelPrograms:
        """The programs of the network, compiled for a function."""
        if self._programs is not None and not self._programs.fit(self):
            if function != "predict" or self._asked is None:
                raise changed_since(self.name)
            self.compile(**self._asked.to_predict())
        waits = self._late is not None and (self._late.needs_targets or (
            self._late.resume is not None and not self.axis_names))
        if function == "predict" and waits and self._late is not None:
            if self._programs is None:
                self.compile_now(**self._late.to_predict())
        else:
            self.compile_if_due(function)
        if self._programs is None:
            if function != "predict":
                raise not_compiled(self.name, function)
            self.compile()
        if self._programs is None:
            raise self._without_sizes()
        return self._programs

    def need_compiled(self) -> None:
        """Compiles the network to predict if it never was."""
        with self.preparing:
            if self._programs is None and self._late is None:
                self.compile()

    def size_for(self, x: Any, function: str) -> int | None:
        """The batch size that one call on all rows of x needs; None: that of `compile`."""
        from ztorch.feed.row_shapes import row_count

        self.compile_if_due(function)
        rows, program = row_count(x), self.program
        return None if rows is None or program is None or rows <= program.batch_size else rows
