"""Lists the devices of this machine, and resolves device strings such as "cuda:0"."""

from __future__ import annotations

import shlex
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ztorch.backends import registry
from ztorch.errors import DeviceError, UnknownName, ZtorchError, unknown
from ztorch.host import processor
from ztorch.host.c_compiler import compiler
from ztorch.host.choices import choices
from ztorch.host.settings import current
from ztorch.machines.backends import before_cpu, computes
from ztorch.machines.chips import CHIPS
from ztorch.machines.processors import PROCESSORS, SIMD_LEVELS
from ztorch.runtime.spec import CPU_LEVELS, ProgramSpec

if TYPE_CHECKING:
    from ztorch.backends.handles import DeviceInfo

# The device of the enclosing `with zt.device(...)`, and the device of `zt.set_default_device`.
device_of_block: ContextVar[str | None] = ContextVar("device", default=None)
device_of_process: list[str] = []
SOURCES = ("c",)  # devices whose code is compiled for this CPU by the C compiler


@dataclass(frozen=True)
class Level:
    """A SIMD level of CPUs, and whether this CPU supports it."""

    name: str  # the part after cpu: in a device string
    available: bool
    reason: str = ""  # why it is not available


@dataclass(frozen=True)
class ListedDevice:
    """A device of this machine, or a backend without one."""

    id: str  # the device string for `compile`
    kind: str  # cpu, gpu, integrated or virtual; empty if there is no device
    name: str = ""  # the name for display
    available: bool = True
    reason: str = ""  # why it is not available
    memory_bytes: int = 0
    cores: int = 0  # physical cores of a CPU
    threads: int = 0  # threads that a CPU runs at once; largest workgroup of other devices
    levels: tuple[Level, ...] = ()  # SIMD levels of a CPU
    chip: str = ""  # the chip that code is compiled for
    driver: str = ""  # name and version
    limits: tuple[tuple[str, int], ...] = ()  # limits that the driver reports

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "limits": dict(self.limits)}


def devices() -> list[ListedDevice]:
    """Lists the devices of this machine, and each backend without a device, with the reason.

    Returns:
        The CPU first, with code from LLVM and with code from the C compiler, then the others.

    Examples:
        >>> import ztorch as zt
        >>> zt.devices()[0].id
        'cpu'
    """
    cpu = ListedDevice("cpu", "cpu", processor.cpu_name(), memory_bytes=processor.memory_bytes(),
                       cores=processor.physical_cores(), threads=processor.usable_cores(),
                       levels=tuple(_level(name) for name in CPU_LEVELS))
    listed = [cpu, *(_by_source(name, cpu) for name in SOURCES)]
    for name in registry.names():
        infos, reason = registry.usable_devices(name)
        listed += [_described(name, info) for info in infos] or [
            ListedDevice(name, "", available=False, reason=reason)]
    return listed


def _by_source(name: str, cpu: ListedDevice) -> ListedDevice:
    """The CPU as a device whose code comes from the C compiler."""
    try:
        return replace(cpu, id=name, name=f"C99 compiled by {shlex.join(compiler())}", levels=())
    except DeviceError as error:
        return ListedDevice(name, "", available=False, reason=str(error))


def _described(backend: str, info: DeviceInfo) -> ListedDevice:
    return ListedDevice(
        f"{backend}:{info.ordinal}", info.kind, info.name, memory_bytes=info.memory_bytes,
        threads=dict(info.limits).get("threads", 0), chip=info.chip, driver=info.driver,
        limits=info.limits)


def chosen_device() -> str | None:
    """The device of `with zt.device(...)` or `set_default_device`; None if neither is set."""
    return device_of_block.get() or next(iter(device_of_process), None)


def best_device() -> str:
    """The device that "auto" means: that of `with zt.device(...)`, else of `set_default_device`,
    else the configured default, else the first GPU in the order of preference, else the CPU.

    A driver that imitates a GPU on the CPU is never preferred to the CPU.

    Returns:
        The name of the device, such as "cpu" or "cuda:0".

    Examples:
        >>> import ztorch as zt
        >>> zt.best_device() in [device.id for device in zt.devices()]
        True
    """
    return chosen_device() or configured_device()


def configured_device() -> str:
    """The device that "auto" means if none is set in this process."""
    if chosen := choices().default:
        return chosen
    if current().interpret:  # the interpreter runs code for the CPU
        return "cpu"
    for name in before_cpu():
        for d in registry.usable_devices(name)[0] if registry.is_known(name) else ():
            if d.kind in ("gpu", "integrated"):
                return f"{name}:{d.ordinal}"
    allowed = choices()
    if not allowed.uses("cpu"):
        left = [n for n in registry.names() if computes(n)] if allowed.enabled is None else [
            n for n in allowed.enabled if n != "cpu"]
        reasons = "; ".join(f"{n}: {registry.usable_devices(n)[1] or 'no gpu'}" for n in left)
        named = f"{', '.join(left)} ({reasons})" if left else "none"
        raise DeviceError(f"no device is available: the configuration enables {named}. Add 'cpu', "
                          "or install the missing library")
    return "cpu"


def _level(name: str) -> Level:
    """A SIMD level, with the reason if this processor does not support it."""
    level = next(row for row in SIMD_LEVELS if row.name == name)
    if level.arch != processor.architecture():
        return Level(name, False, f"for {level.arch} processors, this one is "
                                  f"{processor.architecture()}")
    if level.feature and level.feature not in processor.features():
        return Level(name, False, f"this processor has no {level.feature}")
    return Level(name, True)


def best_level() -> str:
    """The best SIMD level of this CPU."""
    for level in reversed(SIMD_LEVELS):
        if level.arch == processor.architecture() and level.feature in processor.features():
            return level.name
    raise DeviceError(f"no code generator for {processor.architecture()} CPUs yet")


def known_backends() -> tuple[str, ...]:
    """The names of all backends, including the CPU and backends without a device here.

    >>> "cpu" in known_backends() and "cuda" in known_backends()
    True
    """
    return ("cpu", *SOURCES, *registry.names())


def device_names() -> list[str]:
    """All device strings without device numbers: backends, levels, processors, chips.

    >>> {"auto", "cpu:avx2", "cpu:zen3", "c", "cuda:sm_90", "webgpu"} <= set(device_names())
    True
    """
    processors = [f"cpu:{row.name}" for row in PROCESSORS.values() if row.level]
    return ["auto", "cpu", *(f"cpu:{n}" for n in CPU_LEVELS), *processors, *SOURCES,
            *registry.names(), *(f"{chip.backend}:{chip.name}" for chip in CHIPS)]


class ResolvedDevice(NamedTuple):
    """The meaning of a device string."""

    target: str  # the target to compile for
    backend: str  # the backend that runs the code
    ordinal: int | None  # number of the device; None: the string names a chip, for export
    processor: str = ""  # the processor to compile for; empty: this machine's
    native: bool = False  # whether code may use what this processor has beyond its level


def resolve(device: str, must_be_local: bool = True) -> ResolvedDevice:
    """The meaning of a device string: backend[:number or chip], or cpu[:level][:processor].

    Args:
        device: The device string.
        must_be_local: Whether the device must be on this machine. If not, the name of a backend
            means any of its devices. Default: `True`.

    >>> resolve("cpu:avx2")
    ResolvedDevice(target='avx2', backend='cpu', ordinal=0, processor='', native=False)
    >>> resolve("cpu:zen3")
    ResolvedDevice(target='avx2', backend='cpu', ordinal=0, processor='zen3', native=False)
    >>> resolve("cpu:avx2:zen4")
    ResolvedDevice(target='avx2', backend='cpu', ordinal=0, processor='zen4', native=False)
    >>> resolve("cuda:sm_90")
    ResolvedDevice(target='cuda:sm_90', backend='cuda', ordinal=None, processor='', native=False)
    """
    if device == "auto":
        return _resolved_default(must_be_local)
    if device == "cpu":
        return ResolvedDevice(best_level(), "cpu", 0, native=True)
    if device in SOURCES:
        return ResolvedDevice(device, "cpu", 0)
    kind, _, rest = str(device).partition(":")
    level, colon, name = rest.partition(":")
    row = PROCESSORS.get(name if colon else rest) if kind == "cpu" else None
    if row is not None and not colon:
        level = row.level
    if kind == "cpu" and level in CPU_LEVELS and (row is not None or not colon):
        if must_be_local and not _level(level).available:
            raise _elsewhere(device, _level(level).reason)
        return ResolvedDevice(level, "cpu", 0, "" if row is None else row.name)
    if not registry.is_known(kind):
        raise _unknown_device(device)
    if rest and not rest.isdecimal():
        return ResolvedDevice(device, kind, None)
    if not rest and not must_be_local:
        return ResolvedDevice(kind, kind, None)
    info = registry.open_device(kind, int(rest) if rest else None).info
    return ResolvedDevice(f"{kind}:{info.chip}" if info.chip else kind, kind, info.ordinal)


def _resolved_default(must_be_local: bool) -> ResolvedDevice:
    """The device that the environment or the config file names, else the best one."""
    device = best_device()
    if device == "auto":
        raise DeviceError("the configured default device is 'auto'; name a device")
    try:
        return resolve(device, must_be_local)
    except ZtorchError as error:
        if choices().default is None:
            raise
        raise type(error)(f"the default device of ZTORCH_DEVICE or the config file: "
                          f"{error}") from None


def _unknown_device(device: str) -> UnknownName:
    from ztorch.machines.gpus import gpu_by_short_name  # a table that errors alone need

    gpu = gpu_by_short_name(str(device))
    if gpu is not None:
        return UnknownName(f"unknown device {device!r}; name the code that it runs: "
                           f"{gpu.targets[0]!r}")
    return unknown("device", device, device_names())


def _elsewhere(device: str, reason: str) -> DeviceError:
    usable = ", ".join(f"cpu:{n}" for n in CPU_LEVELS if _level(n).available)
    return DeviceError(f"{device} does not run here ({reason}); {usable} do. For another machine: "
                       f"ztorch export MODEL --device {device} -o FILE.zt")


def device_info(where: ResolvedDevice) -> DeviceInfo:
    """The description of a device by its driver."""
    return registry.open_device(where.backend, where.ordinal).info


def device_refusal(spec: ProgramSpec) -> str:
    """The reason why no device of this machine can run a program; empty if one can."""
    if not registry.is_known(spec.backend):
        return f"is for the backend {spec.backend!r}, which is not installed"
    infos, reason = registry.usable_devices(spec.backend)
    if not infos:
        return f"needs a {spec.backend} device: {reason}"
    if spec.arch and not any(spec.arch in (d.chip, *d.runs) for d in infos):
        return (f"is for the chip {spec.arch}; this machine has "
                f"{', '.join(d.chip or d.name for d in infos)}")
    return ""


def library_versions(backend: str = "cpu") -> tuple[tuple[str, str], ...]:
    """The names and versions of the libraries here whose products the tuner measures beside ours.

    >>> {name for name, _ in library_versions()} <= {"openblas", "onednn"}
    True
    """
    if backend == "cuda":
        from ztorch.backends import cublaslt, cudnn

        opened = ((cublaslt.NAME, cublaslt.cublaslt()), (cudnn.NAME, cudnn.cudnn()))
        return tuple((name, library.version) for name, library in opened if library is not None)
    if backend != "cpu":
        return ()
    from ztorch.backends.vendor_libraries import versions  # loads them

    return versions()
