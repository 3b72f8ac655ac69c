"""Jobs and models on a device, beside the oracle and the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tests.cases.available import device
from tests.cases.jobs import Together
from tests.parity import Job, agree, read, stored
from ztorch.backends.device import Device
from ztorch.backends.handles import Binding, KernelEntry, Launch
from ztorch.codegen import targets
from ztorch.codegen.targets import Target
from ztorch.compile.device_code import device_code, within_limits
from ztorch.compile.kernels import Kernels
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.watch import Watch
from ztorch.errors import Unsupported
from ztorch.ir.kernel import Kernel
from ztorch.lower.locations import Location
from ztorch.lower.params import Params
from ztorch.lower.plan import KernelStep, Plan, lower
from ztorch.runtime.devices import resolve
from ztorch.runtime.remote import Remote


def target_of(here: Device, **limits: int) -> Target:
    """The target that compiles for this very device; `limits` replace those it reports."""
    return targets.target(resolve(here.id).target).on_device({**dict(here.info.limits), **limits})


class Module:
    """Jobs compiled together for a device of a backend."""

    def __init__(self, jobs: Iterable[Job], backend: str, fusion: bool = True, **limits: int):
        here = device(backend)
        target = target_of(here, **limits)
        self.graphs = {f"j{k}": job.alone(f"j{k}") for k, job in enumerate(jobs)}
        self.compiled = compile_functions(self.graphs, target, "parity", fusion=fusion)
        made = self.compiled
        self.remote = Remote(made.spec, made.code, made.params, here)

    def run(self, number: int) -> list[np.ndarray]:
        """The outputs and new states of one job, from its first states."""
        name = f"j{number}"
        graph, remote = self.graphs[name], self.remote
        call = remote.bind(name)
        for v in graph.leaves("input"):
            if v.attrs["name"] in call.inputs:
                call.inputs[v.attrs["name"]][...] = stored(v.dtype, v.attrs["fed"])
        remote.write_params(self.compiled.params)
        call()
        outputs = [read(graph.outputs[n].dtype, a) for n, a in call.outputs.items()]
        return outputs + [read(v.dtype, remote.state(n)) for n, v in graph.updates.items()]


def run_kernels(kernels: Sequence[Kernel], buffers: Sequence[Mapping[str, np.ndarray]],
                backend: str) -> None:
    """Compiles kernels together and runs each on its buffers, in place."""
    here = device(backend)
    plans = {}
    for k, kernel in enumerate(kernels):
        parameters = [m for m in kernel.memories if m.space == "global"]
        places = tuple(Location("inputs", at, m.size * m.dtype.bytes) for at, m in enumerate(parameters))
        step = KernelStep(kernel, places, tuple(m.access != "r" for m in parameters), 0.0)
        plans[f"k{k}"] = Plan(f"k{k}", [], [], [step], 0, [])
    made = device_code(plans, target_of(here), Watch())
    module = here.load(made.code, [KernelEntry(*e) for e in made.entries])
    for name, kernel, held in zip(plans, kernels, buffers, strict=True):
        arrays = [held[m.name] for m in kernel.memories if m.space == "global"]
        there = [here.alloc(a.nbytes) for a in arrays]
        for buffer, a in zip(there, arrays, strict=True):
            here.write(buffer, a)
        launch = made.launches[name][0]
        bindings = tuple(Binding(buffer, 0, a.nbytes, p[3])
                         for buffer, a, p in zip(there, arrays, launch.places, strict=True))
        here.launch(module, Launch(launch.entry, launch.grid, bindings))
        for buffer, a in zip(there, arrays, strict=True):
            here.read(buffer, a)
            here.free(buffer)
    here.unload(module)


def all_agree(backend: str, some: list[Job], **limits: int) -> None:
    """Compiles all supported kernels as one module, runs each and compares. The error names each job that fails.
    `limits` replace the device's own limits."""
    device(backend)

    def module(jobs: Sequence[Job]) -> Module:
        return Module(jobs, backend, **limits)

    together, failed = Together(some, module), {}
    if together.module is None:  # something of it is not supported, so each is asked for alone
        some = [job for job in some if able(job, backend)]
        together = Together(some, module)
    for job in some:
        try:
            agree(job, together.run(job), terms=20)
        except Exception as error:
            failed[job.label] = error
    if failed:
        raise AssertionError("\n".join(f"{n} on {backend}: {type(e).__name__}: {str(e).strip()}"
                                       for n, e in failed.items())) from next(iter(failed.values()))


def able(job: Job, backend: str) -> bool:
    """A device may lack a dtype beyond the four that all have, and says so before its driver sees
    anything."""
    if all(v.dtype.name in ("f32", "i32", "u32", "bool") for v in job.graph.nodes()):
        return True
    target = target_of(device(backend))
    kernels = Kernels(target)
    try:
        for step in lower("op", job.graph, target.limits, Params(target.limits)).steps:
            within_limits(step, target)
            kernels.number(step.kernel)
    except Unsupported as error:
        assert backend in str(error)
        return False
    return True
