"""Moving averages of weights, which an optimizer with `use_ema=True` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful


def swap_averages(program: Stateful) -> None:
    """Exchanges the weights and their averages. Before the first step there are no averages."""
    program.need("train")
    if not any(name.endswith("/average") for name in program.executable.states):
        raise ConfigError("there are no moving averages of weights; compile with an optimizer that "
                          "keeps them, such as optimizer=Adam(use_ema=True)")
    executable = program.executable
    for name, average in _averages(program).items():
        before = executable.state(name)
        executable.set_state(name, executable.state(average))
        executable.set_state(average, before)


def take_averages(program: Stateful) -> None:
    """Replaces weights by their averages, if any, at the end of `fit`."""
    executable = program.executable
    for name, average in _averages(program).items():
        executable.set_state(name, executable.state(average))


def _averages(program: Stateful) -> dict[str, str]:
    """The state with the average of each weight; empty before the first step."""
    executable = program.executable
    names = {name: f"optimizer/{name}/average" for name in program.weight_names}
    averages = {name: state for name, state in names.items() if state in executable.states}
    return averages if averages and executable.state("optimizer/step") > 0 else {}
