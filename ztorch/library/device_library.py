"""`zt.backends.get`: the one object for each device."""

from __future__ import annotations

import os

from ztorch.backends import registry
from ztorch.codegen.targets import target
from ztorch.host import processor
from ztorch.library.capabilities import Capabilities
from ztorch.library.memory import DeviceStore
from ztorch.library.programs import Options, Trial
from ztorch.library.routines import Routines
from ztorch.runtime.devices import best_level


class DeviceLibrary(Routines):
    """A device for authors of libraries: memory, streams, and routines on raw buffers.

    Routines are compiled at their first call for the sizes, dtypes and strides of their operands,
    and kept. Work on a device may go on after a call returns; `download` and `synchronize` wait.
    Several threads may use one object.

    Examples:
        >>> import ztorch as zt
        >>> cpu = zt.backends.get("cpu")
        >>> cpu.name, cpu.is_available
        ('cpu', True)
    """

    _capabilities: Capabilities | None = None

    def capabilities(self) -> Capabilities:
        """The capabilities of the device: ops by dtype, limits, memory, languages of kernels.

        Examples:
            >>> import ztorch as zt
            >>> able = zt.backends.get("cpu").capabilities()
            >>> able.kind, able.languages, able.supports("gemm", "int8")
            ('cpu', ('c',), True)
        """
        store = self._store
        with self._guard:
            if self._capabilities is None:
                described: tuple[str, str, int, dict[str, int]]
                if isinstance(store, DeviceStore):
                    info = store.device.info
                    described = info.kind, info.name, info.memory_bytes, dict(info.limits)
                else:
                    described = ("cpu", processor.cpu_name(), processor.memory_bytes(),
                                 self._limits())
                languages = registry.languages(self.name.partition(":")[0])
                self._capabilities = Capabilities(self, Trial(store, self.options),
                                                  *described, languages)
        return self._capabilities

    def _limits(self) -> dict[str, int]:
        """The capabilities of a processor, by the names of GPUs where they mean the same."""
        level = self.options.device.partition(":")[2] or best_level()
        return {"threads": self.options.threads or processor.usable_cores(),
                "simd_bits": target(level).limits.vector_bits}

    def __repr__(self) -> str:
        return f"<backend {self.name}{'' if self.is_available else ', not available'}>"


_libraries: dict[str, DeviceLibrary] = {}


def get(name: str) -> DeviceLibrary:
    """The object of a device: always the same one for a name.

    Args:
        name: The device, such as "cpu", "cuda:0" or "vulkan:0"; "auto" is the best one.

    Returns:
        The object. Where the device is not here, `is_available` is False and `reason` says why.

    Raises:
        UnknownName: There is no such backend.

    Examples:
        >>> import ztorch as zt
        >>> zt.backends.get("cpu") is zt.backends.get("cpu")
        True
    """
    known = _libraries.get(name)
    if known is None or not known.is_available:
        known = _libraries[name] = DeviceLibrary(Options(name))
    return known


if hasattr(os, "register_at_fork"):  # locks of other threads would never be released
    os.register_at_fork(after_in_child=_libraries.clear)
