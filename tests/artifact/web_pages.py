"""Pages run in a JavaScript engine: requests and answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cases.available import REQUIRED, device

DRIVER = Path(__file__).with_name("web_driver.mjs")


def asked(folder: Path, artifact: str, calls: list[Any], on: str | None = "WebGPU",
          **more: Any) -> tuple[Any, list[Any]]:
    """The page's script's description of the model, and the result of each call."""
    device("webgpu")
    try:
        import deno
    except ImportError:
        assert "webgpu" not in REQUIRED, "deno is required here, to run what pages run"
        pytest.skip("deno is not installed")
    (folder / "job.json").write_text(json.dumps({"artifact": artifact, "calls": calls, "on": on, **more}))
    ran = subprocess.run([deno.find_deno_bin(), "run", "--quiet", "--no-prompt", "--unstable-webgpu",
                          f"--allow-read={folder}", DRIVER, folder], capture_output=True, text=True,
                         timeout=200)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    return results.get("made"), results["found"]
