"""Measures the time of a kernel on a device of this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ztorch.abi import PORT_ALIGN
from ztorch.codegen.targets import Target
from ztorch.compile.description import describe_program
from ztorch.compile.device_code import device_code
from ztorch.compile.watch import Watch
from ztorch.host.settings import using
from ztorch.lower.params import Params
from ztorch.lower.plan import Plan
from ztorch.lower.region_kernel import KernelStep
from ztorch.runtime.launch_times import launch_seconds
from ztorch.runtime.remote import Remote, RemoteCall
from ztorch.runtime.start import start
from ztorch.tune.kernel_benchmark import compact, initial_values


def device_seconds(step: KernelStep, target: Target, ordinal: int) -> float:
    """The seconds of a launch of a kernel.

    Args:
        step: The kernel on its buffers.
        target: The target of the device.
        ordinal: The number of the device.
    """
    locations, arena = compact(step.locations, PORT_ALIGN)
    plans = {"run": Plan("run", [], [], [replace(step, locations=locations, barrier=True)], arena,
                         [], [])}
    spec = describe_program("race", target, plans, Params(target.limits))
    with using(debug=(), dump=None):
        device = device_code(plans, target, Watch())
    program = start(device.complete(spec, target), device.code,
                    np.zeros(spec.params_bytes, np.uint8), ordinal=ordinal)
    assert isinstance(program, Remote)
    program.opened_device.write(program.buffer("arena"), initial_values(step, locations, arena))
    call = program.bind("run")
    assert isinstance(call, RemoteCall)
    return launch_seconds(call)[0]
