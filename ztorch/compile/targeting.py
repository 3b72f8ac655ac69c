"""The target for which a device is compiled."""

from __future__ import annotations

from ztorch.codegen.processor_targets import PROCESSOR_TARGETS
from ztorch.codegen.target import Target
from ztorch.compile import tuned_files
from ztorch.host import detect
from ztorch.host import processor as this_processor
from ztorch.host.settings import current
from ztorch.machines.processors import processor
from ztorch.runtime.devices import ResolvedDevice, device_info, library_versions


def target_for(place: ResolvedDevice) -> Target:
    """The target for a device, with the properties of the machine: the device's own report, the row
    of a named processor, or this machine's processor if it can run the code. For another machine,
    only the row of the target.

    >>> from ztorch.runtime.devices import resolve
    >>> target_for(resolve("cpu:zen3")).limits.processor.l2_bytes
    524288
    """
    target = _target(place.target)
    if target.limits.grid is not None:
        from ztorch.machines.gpus import gpu_of_device  # a table that processors do not need

        if place.ordinal is None:
            return target
        info = device_info(place)
        gpu = gpu_of_device(info.name)
        return target.on_device({**dict(info.limits), **({"unit": gpu.rates} if gpu else {})})
    if place.processor:
        row = processor(place.processor)
        return (target.with_byte_dots() if row.byte_dots else target).on_processor(row)
    runs_here = (target.arch == this_processor.architecture()
                 and this_processor.features().issuperset(target.required_features))
    if place.native and target.byte_dots in this_processor.features():
        target = target.with_byte_dots()
    if runs_here and not target.emits_source:
        return target.on_processor(detect.detected())
    return target


def with_libraries(target: Target, on_device: bool = False) -> Target:
    """The target with the libraries of this machine, if the tuner has measured products by them
    and this processor runs the target, or a device of this machine does. Code for files is compiled
    without them.

    >>> from ztorch.runtime.devices import resolve
    >>> with_libraries(target_for(resolve("cpu:zen3"))).limits.libraries
    ()
    """
    runs_here = on_device if target.limits.grid is not None else (
        target.limits.processor == detect.detected())
    if not runs_here or not current().tuned or not tuned_files.has_libraries():
        return target
    return target.with_libraries(library_versions(target.backend))


def _target(name: str) -> Target:
    """The target with this name. The rows of GPUs load only for them."""
    for row in PROCESSOR_TARGETS:
        if row.name == name:
            return row
    from ztorch.codegen.targets import target

    return target(name)
