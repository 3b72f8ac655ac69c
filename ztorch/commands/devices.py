"""ztorch devices: the devices of this machine, and why others are missing."""

from __future__ import annotations

import click

from ztorch.commands import options
from ztorch.commands.group import examples
from ztorch.terminal.text_table import aligned_table


@click.command("devices")
@options.as_json
@examples("ztorch devices")
def list_devices(as_json: bool) -> None:
    """List devices, and why others are missing."""
    import json

    from ztorch.machines.backends import computes
    from ztorch.runtime.devices import devices

    all_devices = [d for d in devices() if computes(d.id.partition(":")[0])]
    if as_json:
        print(json.dumps([d.to_json() for d in all_devices], indent=2))
        return
    for d in all_devices:
        if not d.available:
            continue
        size = f"{d.memory_bytes / 2**30:.1f} GiB"
        if not d.levels:
            chip, driver = (f", {text}" if text else "" for text in (d.chip, d.driver))
            print(f"{d.id}: {d.name} ({d.kind}{chip}), {size}{driver}")
            continue
        print(f"{d.id}: {d.name}, {d.cores} cores, {d.threads} threads, {size}")
        best = next((level.name for level in reversed(d.levels) if level.available), None)
        states = {level.name: "yes" if level.available else f"no: {level.reason}"
                  for level in d.levels}
        if best:
            states[best] += ", the best"
        print(aligned_table(((f"{d.id}:{name}", state) for name, state in states.items()), "  "))
    if missing := [d for d in all_devices if not d.available]:
        print("Not here:")
        print(aligned_table(((d.id, d.reason) for d in missing), "  "))
