"""Finds the C compiler of this machine, which the device "c" needs."""

from __future__ import annotations

import shlex
import shutil

from ztorch.errors import DeviceError
from ztorch.host.settings import current

NAMES = ("cc", "gcc", "clang")  # commands to try, in this order


def compiler() -> list[str]:
    """The command of the C compiler: the one in CC, or the first of NAMES that is installed.

    >>> compiler()     # doctest: +SKIP
    ['cc']
    """
    if chosen := current().cc:
        command = _words(chosen)
        if not command or shutil.which(command[0]) is None:
            raise DeviceError(f"CC={chosen!r} is not a compiler that can be run; set it to one, or "
                              f"unset it to try {', '.join(NAMES)}")
        return command
    for name in NAMES:
        if shutil.which(name):
            return [name]
    raise DeviceError(f"device 'c' needs a C compiler, and none of {', '.join(NAMES)} is "
                      "installed: install one (apt install gcc, dnf install gcc), or set CC to the "
                      "command of yours")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unclosed quote
        return []
