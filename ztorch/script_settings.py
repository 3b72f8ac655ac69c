"""Settings of a script by name, like `keras.utils.Config`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ztorch.errors import ConfigError


class ScriptSettings:
    """Settings by name, as attributes and as items. They can be frozen.

    Args:
        **settings: The settings.

    Examples:
        >>> config = ScriptSettings(rate=0.1, layers=2)
        >>> config.rate = 0.2
        >>> config["rate"], config.as_dict()
        (0.2, {'rate': 0.2, 'layers': 2})
    """

    def __init__(self, **settings: Any):
        vars(self).update(_settings=settings, _frozen=False)

    def freeze(self) -> None:
        """Turns every later change into an error."""
        vars(self)["_frozen"] = True

    def unfreeze(self) -> None:
        """Allows changes again."""
        vars(self)["_frozen"] = False

    def as_dict(self) -> dict[str, Any]:
        """A copy of the settings."""
        return dict(self._settings)

    def to_json(self) -> str:
        """The settings as JSON."""
        return json.dumps(self._settings)

    def update(self, *others: dict[str, Any], **settings: Any) -> None:
        """Changes several settings.

        Args:
            *others: Dicts of settings.
            **settings: Settings by name.
        """
        for name, value in {**{k: v for d in others for k, v in d.items()}, **settings}.items():
            self[name] = value

    def keys(self) -> Any:
        """The names."""
        return self._settings.keys()

    def items(self) -> Any:
        """Pairs of name and value."""
        return self._settings.items()

    def get(self, name: str, default: Any = None) -> Any:
        """A setting, or a default.

        Args:
            name: The name.
            default: The result if there is no such setting. Default: `None`.
        """
        return self._settings.get(name, default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in vars(self)["_settings"]:
            raise AttributeError(f"there is no setting {name!r}")
        return self._settings[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if vars(self)["_frozen"]:
            raise ConfigError(f"the settings are frozen, and {name!r} is set; unfreeze() them")
        self._settings[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"<ScriptSettings {self._settings}>"
