"""The NumPy definition of barriers of several workgroups: those of a cluster or of a whole launch.

Where all threads of the launch meet, accesses to global memory before the barrier race with none
behind it.
"""

from __future__ import annotations

import numpy as np

from ztorch.ir.kernel import Instr
from ztorch.ir.registers import Step
from ztorch.ir.ring_steps import RingSteps

MET = 1 << 31  # the bit of a counter that each barrier of a launch flips


class LaunchSteps(RingSteps):
    """Ring steps, and closures for the barriers of several workgroups."""

    def _cluster_barrier(self, at: int, instr: Instr) -> Step:
        def step() -> None:
            self.together(at, self.size * self.kernel.cluster, "cluster")
            self._met()
            if self.threads == self.size * self.kernel.cluster:
                self._order()
        return step

    def _grid_barrier(self, at: int, instr: Instr) -> Step:
        key, store, off = (self.key(instr.args[0]), self.stores[instr.attrs["mem"]],
                           instr.attrs["off"])

        def step() -> None:
            self.together(at, self.threads, "launch")
            places, _ = self.reach(at, store, self.regs[key] + off, None)
            counters = np.unique(places)
            if len(counters) > 1:
                raise self.fail(at, "the threads of a launch meet at several counters")
            if store.data[counters[0]] & (MET - 1):
                raise self.fail(at, f"the counter {store.spec.name}[{counters[0]}] was not zero "
                                    "before the first launch")
            store.data[counters[0]] ^= MET
            self._met()
            self._order()
        return step

    def _met(self) -> None:
        self.epoch = self.epoch + self.present()
        self.cluster_epoch = self.cluster_epoch + self.present()

    def _order(self) -> None:
        """Order all accesses to global memory before those that follow."""
        for store in self.stores.values():
            if store.races is not None and store.spec.space == "global":
                store.races.forget()
