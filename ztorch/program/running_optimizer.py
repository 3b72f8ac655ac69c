"""The optimizer of a program: the settings that users can change during training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import LoadedProgram


class OptimizerVariable:
    """A state of an optimizer in a program.

    Args:
        executable: The program's code and states.
        name: Its name in the program.
    """

    def __init__(self, executable: LoadedProgram, name: str):
        self._executable, self.path = executable, name
        self.name = name.removeprefix("optimizer/")
        self.shape = tuple(executable.states[name].shape)

    @property
    def value(self) -> np.ndarray:
        """A copy of its current values."""
        return self.numpy()

    def numpy(self) -> np.ndarray:
        """A copy of its current values."""
        return np.array(self._executable.state(self.path))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def assign(self, value: Any) -> None:
        """Sets its values.

        Args:
            value: An array with its shape.
        """
        now = self.numpy()
        self._executable.set_state(self.path, np.broadcast_to(value, now.shape).astype(now.dtype))

    def __repr__(self) -> str:
        return f"<variable {self.name} of an optimizer {self.shape}>"


class LearningRate(float):
    """The learning rate of a program: a number that can be assigned like a Keras variable.

    Args:
        program: The program.
    """

    def __new__(cls, program: Any) -> LearningRate:
        return super().__new__(cls, program.learning_rate)

    def __init__(self, program: Any):
        self._program = program

    def assign(self, rate: float) -> None:
        """Sets the rate of the next steps.

        Args:
            rate: A non-negative number.
        """
        self._program.learning_rate = rate

    def numpy(self) -> np.ndarray:
        """The rate as an array, as Keras' variables return it."""
        return np.array(float(self), np.float32)


class RunningOptimizer:
    """The optimizer that is compiled into the step of a program. Its rate may change; its other
    settings are compiled in.

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
    def learning_rate(self) -> LearningRate:
        """The learning rate, which can be set unless it follows a schedule."""
        return LearningRate(self._program)

    def scheduled_rate(self) -> float | None:
        """The rate of the next step by the optimizer's schedule; None if it has none."""
        from ztorch.schedules import LearningRateSchedule

        schedule = self._config.get("learning_rate")
        return (LearningRateSchedule.get(schedule)(self.iterations) if isinstance(schedule, dict)
                else None)

    @property
    def iterations(self) -> int:
        """The number of steps so far."""
        return int(self._program.executable.state("optimizer/step"))

    @property
    def variables(self) -> list[OptimizerVariable]:
        """The states of the optimizer: its step counter, and the slots of each weight."""
        states = self._program.executable.states
        return [OptimizerVariable(self._program.executable, name) for name in states
                if name.startswith("optimizer/")]

    def get_config(self) -> dict[str, Any]:
        """The arguments of the optimizer, with the current learning rate."""
        rate = self._program.learning_rate_or_none()
        return {**self._config, **({} if rate is None else {"learning_rate": rate})}

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "learning_rate":
            raise ConfigError(f"optimizer.{name} is compiled into the step; compile again with "
                              "another optimizer. Only learning_rate can be set")
        self._program.learning_rate = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._config:
            raise AttributeError(f"the optimizer {self.name} has no {name!r}")
        return self._config[name]

    def __repr__(self) -> str:
        return f"<{self.name or 'optimizer'} of program {self._program.name}>"
