"""RemoteMonitor, which sends the scores of epochs to a server."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Mapping

import numpy as np

from ztorch.arguments import checked
from ztorch.callbacks.callback import Callback, Logs
from ztorch.config import flag
from ztorch.errors import ConfigError

TIMEOUT = 10.0  # seconds to wait for the server


class RemoteMonitor(Callback):
    """Sends the scores of each epoch to a server by HTTP POST. If the server does not answer, a
    warning is issued.

    Args:
        root: The address of the server. Default: `"http://localhost:9000"`.
        path: The path on the server. Default: `"/publish/epoch/end/"`.
        field: The form field that holds the scores as JSON. Default: `"data"`.
        headers: More headers. `None` means none. Default: `None`.
        send_as_json: Whether to send JSON instead of a form. Default: `False`.

    Examples:
        >>> callback = RemoteMonitor("http://localhost:9000", send_as_json=True)
    """

    @checked
    def __init__(self, root: str = "http://localhost:9000", path: str = "/publish/epoch/end/",
                 field: str = "data", headers: Mapping[str, str] | None = None,
                 send_as_json: bool = False):
        if not str(root).startswith(("http://", "https://")):
            raise ConfigError(f"RemoteMonitor(root={root!r}) must start with http:// or https://")
        self.root, self.path, self.field = root, path, field
        if headers is not None and not isinstance(headers, Mapping):
            raise ConfigError(f"RemoteMonitor(headers={headers!r}) must be a dict")
        self.headers = dict(headers or {})
        self.send_as_json = flag("RemoteMonitor(send_as_json=...)", send_as_json)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        scores = json.dumps({"epoch": epoch, **{
            name: np.asarray(score).tolist() for name, score in (logs or {}).items()}})
        if self.send_as_json:
            kind, body = "application/json", scores.encode()
        else:
            kind = "application/x-www-form-urlencoded"
            body = urllib.parse.urlencode({self.field: scores}).encode()
        request = urllib.request.Request(self.root + self.path, body,
                                         {"Content-Type": kind, **self.headers})
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT).close()
        except (urllib.error.URLError, OSError) as error:
            warnings.warn(f"RemoteMonitor: {self.root} did not accept the scores of epoch "
                          f"{epoch + 1}: {error}", stacklevel=2)
