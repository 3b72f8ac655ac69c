"""The members of a room by name. The file of a member is imported when its name is looked up."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any

from ztorch.names.class_names import is_ours
from ztorch.names.places import PLACES


class Members(MutableMapping[str, Any]):
    """A registry that knows all its names from the start, and a member once it is used.

    Args:
        module: The module that makes the registry, such as `"ztorch.layers.layer"`. Its room is
            searched for members; other modules' registries begin empty.

    Examples:
        >>> losses = Members("ztorch.losses.loss")
        >>> "mse" in losses, losses.loaded
        (True, {})
    """

    def __init__(self, module: str):
        package, _, rest = module.partition(".")
        room = rest.partition(".")[0]
        files = PLACES.get(room, {}) if package == "ztorch" else {}
        self.loaded: dict[str, Any] = {}  # the members that are imported
        self._ours: dict[str, Any] = {}  # those of the package
        self._files = {name: f"ztorch.{room}.{file}"
                       for file, names in files.items() for name in names.split()}

    def __getitem__(self, name: str) -> Any:
        if name not in self.loaded and name in self._files:
            importlib.import_module(self._files[name])  # this registers the member
        return self.loaded[name]

    def ours(self, name: str) -> Any:
        """The package's member of a name that a user's may have for a while; else the user's."""
        member = self[name]
        return self._ours.get(name, member)

    def __setitem__(self, name: str, member: Any) -> None:
        self.loaded[name] = member
        if is_ours(member):
            self._ours[name] = member

    def __delitem__(self, name: str) -> None:
        del self.loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.loaded or name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter({**self._files, **self.loaded})

    def __len__(self) -> int:
        return len({**self._files, **self.loaded})

    def __reversed__(self) -> Iterator[str]:
        return reversed({**self._files, **self.loaded})
