"""The C compiler of this machine, which the device "c" needs."""

from __future__ import annotations

import shlex
import shutil

from ztorch.errors import DeviceError
from ztorch.host.settings import current

NAMES = ("cc", "gcc", "clang")


def compiler() -> list[str]:
    """The command that compiles C: the one in CC, else the first of NAMES that is installed.

    >>> compiler()     # doctest: +SKIP
    ['cc']
    """
    if chosen := current().cc:
        command = _words(chosen)
        if not command or shutil.which(command[0]) is None:
            raise DeviceError(f"CC={chosen!r} is no compiler that can be run; set it to one, or to "
                              f"nothing to have {', '.join(NAMES)} looked for")
        return command
    for name in NAMES:
        if shutil.which(name):
            return [name]
    raise DeviceError(f"device 'c' needs a C compiler, and there is none called "
                      f"{', '.join(NAMES)}: install one (apt install gcc, dnf install gcc), or "
                      "name yours in CC")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation that does not end
        return []
