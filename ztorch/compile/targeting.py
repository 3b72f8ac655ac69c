"""Which target a device is compiled for."""

from __future__ import annotations

from ztorch.codegen import targets
from ztorch.codegen.targets import Target
from ztorch.host import detect
from ztorch.host import processor as this_processor
from ztorch.machines.processors import processor
from ztorch.runtime.devices import Where, limits_of


def target_for(place: Where) -> Target:
    """The target for a device, with what is known of the machine: what the device says of itself,
    the row of a named processor, or this machine's processor where it can run the code. For a
    machine elsewhere it is the row of the target alone.

    >>> from ztorch.runtime.devices import resolve
    >>> target_for(resolve("cpu:zen3")).limits.processor.l2_bytes
    524288
    """
    target = targets.target(place.target)
    if target.limits.grid is not None:
        return target if place.ordinal is None else target.on_device(limits_of(place))
    if place.processor:
        return target.on_processor(processor(place.processor))
    runs_here = (target.arch == this_processor.architecture()
                 and this_processor.features().issuperset(target.required_features))
    if runs_here and not target.emits_source:
        return target.on_processor(detect.detected())
    return target
