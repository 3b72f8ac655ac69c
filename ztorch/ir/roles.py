"""Runs the branches of an `if` side by side where their threads wait for each other.

One of them runs at a time, until it has to wait. The first one that is ready runs next, so the
producer, which comes first, runs as far ahead as its waits allow. Memory that the waits fail to
protect is then overwritten, and tests notice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.errors import InterpretError

Step = Callable[[], None]


class _Stopped(BaseException):
    """Another role has failed."""


class Role:
    """A branch, with the threads that run it."""

    def __init__(self, active: np.ndarray, steps: list[Step]):
        self.active: np.ndarray | None = active
        self.steps = steps
        self.resume = threading.Semaphore(0)  # released when it is scheduled
        self.ready: Callable[[], bool] | None = None  # None: it does not wait
        self.waits = ""  # what it waits for, for messages
        self.done = False

    def can_go_on(self) -> bool:
        return not self.done and (self.ready is None or self.ready())


class Roles:
    """The roles of a launch. The machine is passed to methods, not stored."""

    def __init__(self) -> None:
        self.all: list[Role] = []
        self.current: Role | None = None
        self.error: BaseException | None = None
        self.over = threading.Semaphore(0)

    def run(self, m: Any, roles: list[Role]) -> None:
        """Run roles to completion."""
        outer, self.all = m.active, roles
        for role in roles:
            threading.Thread(target=self._play, args=(m, role), daemon=True).start()
        self._next().resume.release()
        self.over.acquire()
        m.active, self.all, self.current = outer, [], None
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def until(self, m: Any, ready: Callable[[], bool], waits: str,
              fail: Callable[[str], InterpretError]) -> None:
        """Return when `ready()` holds; other roles run until then."""
        me = self.current
        if me is None:
            if not ready():
                raise fail(f"deadlock: {waits}, and no other role can go on")
            return
        me.ready, me.waits = ready, waits
        first = self._first()
        if first is None:
            others = "; ".join(r.waits for r in self.all if r is not me and not r.done)
            raise fail(f"deadlock: {waits}; {others or 'all others have ended'}")
        if first is not me:
            me.active = m.active
            first.resume.release()
            me.resume.acquire()
            if self.error is not None:
                raise _Stopped
            self.current, m.active = me, me.active
        me.ready = None

    def offer(self, m: Any) -> None:
        """Let earlier roles that are ready run."""
        if self.current is not None and self._first() is not self.current:
            self.until(m, lambda: True, "", InterpretError)

    def _first(self) -> Role | None:
        return next((r for r in self.all if r.can_go_on()), None)

    def _next(self) -> Role:
        """The role to run after one has ended; after an error each of them is ended."""
        return next(r for r in self.all if not r.done and (self.error or r.can_go_on()))

    def _play(self, m: Any, role: Role) -> None:
        role.resume.acquire()
        try:
            if self.error is None:
                self.current, m.active = role, role.active
                with np.errstate(all="ignore"):
                    for step in role.steps:
                        step()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
        role.done = True
        left = [r for r in self.all if not r.done]
        if left and self.error is None and self._first() is None:
            self.error = InterpretError(f"kernel {m.kernel.name}: deadlock: " + "; ".join(
                r.waits for r in left))
        if left:
            self._next().resume.release()
        else:
            self.over.release()
