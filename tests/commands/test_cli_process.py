"""The command line as a process: its doors, Ctrl-C, closed and full output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import pairs
from tests.commands.results import Run, fails
from ztorch import layers as L

ROOT = Path(zt.__file__).parents[1]


def digits(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    x, y = zt.data.load("digits")[1]
    return x[:rows], y[:rows]


@pytest.mark.slow
def test_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, str(ROOT / "cli.py"), "export", "resnet18", "-o",
                                "r.zt", "--random"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(ROOT), "ZTORCH_DEBUG": "time",
                                    "ZTORCH_CACHE": "0"})  # or it might be found there, and be done
    assert process.stderr is not None
    process.stderr.readline()  # it compiles
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and rest.endswith("stopped\n") and "Traceback" not in rest
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_in_a_native_call() -> None:
    """One that takes minutes, and during which Python hears of no signal; its own answer, which may come
    just before, does nothing here."""
    script = ("import hashlib, os, signal; signal.signal(signal.SIGINT, lambda *_: None); from ztorch.commands import stopping; stopping.watch(); "
              "os.write(1, b'now'); hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None and process.stdout.read(3) == b"now"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"stopped\n") and process.returncode == 130


def test_ctrl_c_while_it_is_loaded_says_nothing(tmp_path: Path) -> None:
    """Click is replaced by a module that asks for Ctrl-C, as it takes longest to import."""
    (tmp_path / "click.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    ended = subprocess.run([sys.executable, str(ROOT / "cli.py"), "devices"], check=False,
                           capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
                           preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                            signal.default_int_handler))
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize(("words", "unbuffered"), pairs(
    [["--help"], ["--version"], ["devices"], ["show", "--help"],
     ["train", "digits_mlp", "--epochs", "1", "--out", "d.zt"]], ["", "1"]))
def test_standard_output_on_a_full_disk(words: list[str], unbuffered: str,
                                        tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, str(ROOT / "cli.py"), *words], stdout=full,
                               stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
                               env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert ended.stderr == "error: cannot write to standard output: No space left on device\n"
    assert ended.returncode == 1


def test_closed_standard_output(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "cli.py"), "train", "digits_mlp", "--epochs", "1", "--out",
             "d.zt"]
    ended = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], cwd=tmp_path, check=False,
                           stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert zt.load(tmp_path / "d.zt").epochs_trained == 1


def test_closed_standard_input(artifact: Path) -> None:
    words = [sys.executable, str(ROOT / "cli.py"), "run", str(artifact)]
    ended = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *words], check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "error: the input is empty\n")


def test_characters_that_a_terminal_lacks_are_escaped() -> None:
    ended = subprocess.run([sys.executable, str(ROOT / "cli.py"), "inspect", "digits_mlp"], check=False,
                           capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert r"\u2500\u2500" in ended.stdout and "hidden_1" in ended.stdout


def test_ctrl_c_before_a_command_begins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ztorch.host.settings.current", press)
    stopped = run("devices")
    assert (stopped.exit_code, stopped.stderr) == (130, "stopped\n")


def test_a_traceback_can_be_requested(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZTORCH_DEBUG", "time")
    assert isinstance(run("inspect", "none.zt").exception, zt.errors.ArtifactError)
    monkeypatch.setenv("ZTORCH_DEBUG", "everything")
    fails(run("inspect", "none.zt"), "ZTORCH_DEBUG='everything' is not a stage")


@pytest.mark.parametrize("how", [[str(ROOT / "cli.py")], ["-m", "ztorch"]])
def test_front_doors(how: list[str], tmp_path: Path, artifact: Path) -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *how, *words], cwd=tmp_path, text=True, check=False,
                              capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    assert call("--version").stdout == f"ztorch, version {zt.__version__}\n"
    x, _ = digits()
    np.save(tmp_path / "x.npy", x)
    assert call("run", str(artifact), "x.npy", "-o", "y.npy").returncode == 0
    assert np.load(tmp_path / "y.npy").shape == (12, 10)
    wrong = call("inspect", "none.zt")
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: cannot read none.zt")


def test_help_is_quick() -> None:
    """And imports neither NumPy nor a compiler."""
    code = ("import atexit, sys; from ztorch.__main__ import main; sys.argv[1:] = ['--help']; "
            "atexit.register(lambda: print({'numpy', 'llvmlite', 'jinja2'} & {*sys.modules})); main()")
    best = 9.0
    for _ in range(3):
        start = os.times()  # not the clock: others may work on this machine
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.stdout.endswith("set()\n")
        end = os.times()
        best = min(best, end.children_user - start.children_user
                   + end.children_system - start.children_system)
    assert best < 0.4  # about 0.06


@pytest.mark.parametrize("words", [("inspect",), ("run", "x.npy")])
def test_commands_on_artifacts_import_no_compiler(words: tuple[str, ...], tmp_path: Path,
                                                  artifact: Path) -> None:
    np.save(tmp_path / "x.npy", digits()[0])
    code = ("import atexit, sys; from ztorch.__main__ import main; rooms = ('ops', 'layers', 'model', 'lower'); "
            "atexit.register(lambda: print({'ztorch.' + room for room in rooms} & {*sys.modules})); main()")
    command, *rows = words
    done = subprocess.run([sys.executable, "-c", code, command, str(artifact), *rows], cwd=tmp_path, text=True,
                          check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.endswith("set()\n")


def test_a_picture_and_a_table_come_through_a_pipe(tmp_path: Path) -> None:
    from PIL import Image

    zt.Sequential([L.Input((4, 4, 1)), L.Flatten(), L.Dense(1, kernel_initializer="ones")]).compile(
        "cpu:scalar", batch_size=1).save(tmp_path / "net.zt")
    Image.new("L", (4, 4), 51).save(tmp_path / "gray.png")
    table = ",".join(["0.2"] * 16).encode() + b"\n"
    for source, arguments in (((tmp_path / "gray.png").read_bytes(), ["-"]), (table, [])):
        ran = subprocess.run([sys.executable, str(ROOT / "cli.py"), "run", "net.zt", *arguments],
                             cwd=tmp_path, input=source, capture_output=True, check=True,
                             env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert float(ran.stdout) == pytest.approx(3.2)
