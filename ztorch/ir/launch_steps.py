"""The NumPy definition of barriers of several workgroups, those of a cluster or of a whole launch,
and of signals from one workgroup to another.

Where all threads of the launch meet, accesses to global memory before the barrier race with none
behind it. A signal hands what a workgroup has written to the thread that waits for it, and so,
behind a barrier, to the workgroup of that thread. Workgroups run side by side, so where all of them
run the same code, the signals of all come before the waits that follow in the text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.lockstep import Watched
from ztorch.ir.registers import Step
from ztorch.ir.ring_steps import RingSteps


class Signal(NamedTuple):
    """A signal that nobody has waited for yet."""

    group: int  # that has given it
    elements: dict[str, np.ndarray]  # what it hands over, by memory


MET = 1 << 31  # the bit of a counter that each barrier of a launch flips


class LaunchSteps(RingSteps):
    """Ring steps, and closures for the barriers of several workgroups, and for signals."""

    def __init__(self, kernel: Kernel, *launch: Any):
        super().__init__(kernel, *launch)
        self.given: dict[tuple[str, int], Signal] = {}  # signals, by memory and element

    def finish(self) -> None:
        super().finish()
        for name, place in self.given:
            raise self.fail(len(self.kernel.body) - 1,
                            f"nobody has waited for the signal {name}[{place}]")

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

    def _grid_signal(self, at: int, instr: Instr) -> Step:
        key, name, off = self.key(instr.args[0]), instr.attrs["mem"], instr.attrs["off"]
        store = self.stores[name]

        def step() -> None:
            for thread, place in self._elements(at, key, store, off):
                if store.data[place]:
                    raise self.fail(at, f"{name}[{place}] is signaled before a wait for the last "
                                        "signal, or was not zero before the first launch")
                store.data[place], group = 1, int(self.group[thread, 0])
                self.given[name, place] = Signal(group, {
                    m: s.races.written_by(thread, group, int(self.epoch[thread, 0]))
                    for m, s in self._shared_by_groups()})
        return step

    def _grid_wait(self, at: int, instr: Instr) -> Step:
        key, name, off = self.key(instr.args[0]), instr.attrs["mem"], instr.attrs["off"]
        store = self.stores[name]

        def step() -> None:
            waiting = self._elements(at, key, store, off)
            missing = [p for _, p in waiting if (name, p) not in self.given]
            waits = f"instruction {at} waits for the signal {name}[{missing[0] if missing else 0}]"
            self.roles.until(self, lambda: all((name, p) in self.given for _, p in waiting), waits,
                             lambda message: self.fail(at, message))
            for thread, place in waiting:
                signal = self.given.pop((name, place))
                store.data[place] = 0
                to = thread, int(self.group[thread, 0]), int(self.epoch[thread, 0])
                for m, s in self._shared_by_groups():
                    s.races.hand_over(signal.elements[m], signal.group, to)
        return step

    def _elements(self, at: int, key: int, store: Watched, off: int) -> list[tuple[int, int]]:
        """The active threads, each with its element."""
        places, _ = self.reach(at, store, self.regs[key] + off, None)
        active = np.flatnonzero(self._each(self.present()))
        return [*zip(active.tolist(), self._each(places)[active].tolist(), strict=True)]

    def _shared_by_groups(self) -> list[tuple[str, Any]]:
        """Global memories in which races are checked."""
        return [(name, s) for name, s in self.stores.items()
                if s.races is not None and s.spec.space == "global"]

    def _met(self) -> None:
        self.epoch = self.epoch + self.present()
        self.cluster_epoch = self.cluster_epoch + self.present()

    def _order(self) -> None:
        """Order all accesses to global memory before those that follow."""
        for store in self.stores.values():
            if store.races is not None and store.spec.space == "global":
                store.races.forget()
