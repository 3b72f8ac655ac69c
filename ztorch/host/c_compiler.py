"""Finds the C compiler of this machine, for the device "c"."""

from __future__ import annotations

import shlex

from ztorch.errors import DeviceError
from ztorch.host.settings import current

NAMES = ("cc", "gcc", "clang")  # commands to try, in this order


def compiler() -> list[str]:
    """The command of the C compiler: the value of CC, or the first of NAMES that is installed.

    >>> compiler()     # doctest: +SKIP
    ['cc']
    """
    import shutil  # it loads four compressions, and few programs need a C compiler

    if setting := current().cc:
        command = _words(setting)
        if not command or shutil.which(command[0]) is None:
            raise DeviceError(f"CC={setting!r} is not a command that can be run; set it to a C "
                              f"compiler, or unset it to try {', '.join(NAMES)}")
        return command
    for name in NAMES:
        if shutil.which(name):
            return [name]
    raise DeviceError(f"device 'c' needs a C compiler, and none of {', '.join(NAMES)} is "
                      "installed: install one (apt install gcc, dnf install gcc), or set CC to "
                      "another compiler")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unclosed quote
        return []
