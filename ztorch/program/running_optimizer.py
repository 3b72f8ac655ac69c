"""The optimizer of a program, as far as users change it while it trains."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError


class RunningOptimizer:
    """The optimizer that is compiled into the step of a program: its rate may change, its other
    settings are code.

    Args:
        program: The program.
    """

    def __init__(self, program: Any):
        vars(self)["_program"] = program
        declaration = program.metadata.declaration
        declared = None if declaration is None else declaration.optimizer
        vars(self)["name"] = "" if declared is None else declared.name
        vars(self)["_config"] = {} if declared is None else dict(declared.config)

    @property
    def learning_rate(self) -> float:
        """The learning rate, which may be set unless it follows a schedule."""
        return float(self._program.learning_rate)

    def scheduled_rate(self) -> float | None:
        """The rate of the next step by the schedule of the optimizer; None if it has none."""
        from ztorch.schedules import LearningRateSchedule

        schedule = self._config.get("learning_rate")
        return (LearningRateSchedule.get(schedule)(self.iterations) if isinstance(schedule, dict)
                else None)

    @property
    def iterations(self) -> int:
        """The steps so far."""
        return int(self._program.executable.state("optimizer/step"))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the optimizer; the learning rate as it is now."""
        rate = self._program.learning_rate_or_none()
        return {**self._config, **({} if rate is None else {"learning_rate": rate})}

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "learning_rate":
            raise ConfigError(f"optimizer.{name} is compiled into the step; compile again with "
                              "another optimizer. Only learning_rate may be set")
        self._program.learning_rate = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._config:
            raise AttributeError(f"the optimizer {self.name} has no {name!r}")
        return self._config[name]

    def __repr__(self) -> str:
        return f"<{self.name or 'optimizer'} of program {self._program.name}>"
