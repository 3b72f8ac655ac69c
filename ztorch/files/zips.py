"""Reads zips of Keras and PyTorch, whose members must be uncompressed."""

from __future__ import annotations

import io
import zipfile

from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing

_MAX_MEMBERS = 200_000  # a file of PyTorch has one for each tensor
_FIX = "copy or write it again"


class StoredZip:
    """The members of a zip by name. Keras and PyTorch store them uncompressed, so compressed ones,
    which could expand to any size, are refused."""

    def __init__(self, data: bytes, where: str):
        self.where = where
        with parsing(where, WeightsError, "is damaged or truncated", _FIX):
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            infos = self._zip.infolist()
        if len(infos) > _MAX_MEMBERS or sum(i.file_size for i in infos) > len(data):
            raise self._damaged(f"its {len(infos)} members claim more bytes than it has")
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename
            if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
                raise WeightsError(f"{where} has a member named {name[:80]!r}, which is outside of "
                                   "its folder; the file may be malicious, do not use it")
            if name in self._members:
                raise self._damaged(f"it has two members named {name[:80]!r}")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise WeightsError(f"{where}: member {name[:80]!r} is compressed or encrypted; "
                                   "pass the file as Keras or PyTorch wrote it")
            self._members[name] = info

    @property
    def names(self) -> list[str]:
        """The names of members, in order."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def size(self, name: str) -> int:
        """The size of a member in bytes."""
        return self._members[name].file_size

    def read(self, name: str) -> bytes:
        """The bytes of a member, after checking its checksum."""
        if name not in self._members:
            raise self._damaged(f"it lacks the member {name[:80]!r}")
        with parsing(self.where, WeightsError, "is damaged or truncated", _FIX, name[:80]):
            return self._zip.read(self._members[name])

    def _damaged(self, why: object) -> WeightsError:
        return WeightsError(f"{self.where} is damaged or truncated ({why}); {_FIX}")
