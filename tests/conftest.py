"""Rules for the whole suite: this checkout and no other, no network, peers where they must be."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

# NumPy and PyTorch multiply with one thread, because test files run in parallel and idle threads spin.
# NumPy reads its variable when it is imported; PyTorch reads OpenMP's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The CUDA driver of the tests reads PTX; tests of machine code ask for it.
os.environ.setdefault("ZTORCH_CUBIN", "0")

# Our own workers still spin and sleep, but sleep sooner: there are more of them than cores.
os.environ.setdefault("ZTORCH_SPIN", "1000")

# The cache of assembled code, shared by all workers and runs.
os.environ.setdefault("ZTORCH_CACHE", f"{Path(__file__).parent.parent}/.pytest_cache/ztorch")

# Workers and hundreds of processes of tests would compile all sources anew where Python is told to leave no
# bytecode: it is left beside them. (Kept in another folder, it would be that of all installed packages.)
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if "PYTEST_XDIST_WORKER" not in os.environ:
    from tests.cases import bytecode

    bytecode.begin()  # before ztorch is imported, which takes a second where its own bytecode is missing, too

import pytest
from _pytest.doctest import DoctestModule

import ztorch
from tests.cases import covering, inner_loop, turns
from tests.cases.grouping import group_of, reseed
from ztorch.codegen import cc, wasm
from ztorch.config import Named

# Graphs, kernels and texts are many small objects that live until a test ends. With the usual thresholds,
# garbage collection takes a third of the time of compiling. What is imported and collected stays anyway.
gc.set_threshold(20_000, 20, 20)
gc.disable()

ROOT = Path(__file__).parent.parent
PEERS = ("torch", "keras")
collect_ignore = ["interchange/torch_networks.py"]  # imports PyTorch, and has no examples to run

# PoCL takes one or two seconds to optimize a kernel, and a tenth of that without; most kernels run once
# or twice here. Tests of the optimizer turn it on.
os.environ.setdefault("ZTORCH_OPENCL_OPTIONS", "-cl-opt-disable")

# PoCL starts a linker for each kernel, by the name of `ld` that its clang finds first.
os.environ.setdefault("COMPILER_PATH", f"{Path(__file__).parent}/cases/linker")

# Mesa's Vulkan on processors takes a fifth less time without, for the same reason.
os.environ.setdefault("GALLIVM_PERF", "nopt")

# Keras picks its backend when it is first imported.
os.environ.setdefault("KERAS_BACKEND", "torch")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true",
                     help="overwrite the golden files of tests with the actual results")
    parser.addoption("--few", action="store_true",
                     help="the inner loop: the first case of each test, and none that takes long")
    parser.addoption("--update-few", action="store_true",
                     help="with --few: run those that take long too, and write anew which they are")
    parser.addoption("--case", default="", help="of tests that group cases, the one of this name alone")
    parser.addoption("--full", action="store_true", default=os.environ.get("ZTORCH_FULL", "") not in ("", "0"),
                     help="every case on every machine, not only a covering of both (ZTORCH_FULL=1)")


@pytest.hookimpl(hookwrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Files without examples are not asked for any: it takes longer than importing them."""
    outcome = yield
    collectors = outcome.get_result()  # type: ignore[attr-defined]
    if any(isinstance(c, DoctestModule) for c in collectors) and b">>>" not in file_path.read_bytes():
        outcome.force_result([c for c in collectors if not isinstance(c, DoctestModule)])  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The inner loop makes no items of cases that it does not run."""
    if metafunc.config.getoption("few") and not inner_loop.runs_every_case(metafunc.definition):
        every = metafunc.parametrize
        metafunc.parametrize = lambda names, argvalues, **options: every(  # type: ignore[method-assign]
            names, **inner_loop.first_value(argvalues, **options))


@pytest.hookimpl(tryfirst=True)  # before -k looks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without_constants_of_modules()
    kept = set(items)
    if config.option.keyword or config.getoption("case"):
        for item in items:
            item.extra_keyword_matches.update(group_of(item) or ())
    if not config.getoption("full"):
        kept = {item for item in items if item.get_closest_marker("full") is None}
    if case := config.getoption("case"):
        kept = {item for item in kept if case in (group_of(item) or ())}
    if config.getoption("few"):
        chosen: dict[str, pytest.Item] = {}
        for item in items:
            if item in kept and item.get_closest_marker("slow") is None:
                every = inner_loop.runs_every_case(item)
                chosen.setdefault(item.nodeid if every else inner_loop.name_of(item.nodeid), item)
        left_out = inner_loop.left_out() if os.environ["ZTORCH_FEW"] == "quick" else ()
        kept = {item for item in chosen.values() if inner_loop.name_of(item.nodeid) not in left_out}
    elif os.environ["ZTORCH_TURN"] != "all":
        kept -= turns.left_for_other_days([item for item in items if item in kept], covering.today())
    if len(kept) == len(items):
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def without_constants_of_modules() -> None:
    """Hypothesis also draws numbers and texts that occur in any module that is loaded: reading a thousand
    of them takes seconds, and a test would draw others alone than after others."""
    if "hypothesis" in sys.modules:
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_finish() -> None:
    """Imported and collected objects stay: garbage collection never looks at them."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """pytest ends with five garbage collections, now of nothing: what all tests left behind goes with the process."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Another checkout's package, or peers that this run promised to have, end the run at once."""
    if not hasattr(config, "workerinput"):  # a worker of xdist inherits the devices that were detected here
        named = config.args_source == pytest.Config.ArgsSource.ARGS
        os.environ["ZTORCH_FEW"] = "all" if named or config.getoption("update_few") else "quick"
        asked = named or config.option.keyword or config.getoption("case") or config.getoption("full")
        day = covering.today()  # before a run that takes no turns forgets it
        if asked or os.environ.get("ZTORCH_TURN") != "all":
            os.environ["ZTORCH_TURN"] = "all" if asked else str(day)
        keep_temporary_files_together(config)
    if config.getoption("update_few"):
        config.pluginmanager.register(inner_loop.Stopwatch())
    os.environ["ZTORCH_FULL"] = "1" if config.getoption("full") else ""  # for lists of cases, and workers
    checkout = Path(ztorch.__file__).parent.parent
    if checkout != ROOT:
        pytest.exit(f"the tests of {ROOT} would test the ztorch of {checkout}", returncode=3)
    if os.environ.get("ZTORCH_REQUIRE_PEERS"):
        missing = [p for p in PEERS if importlib.util.find_spec(p) is None]
        if missing:
            pytest.exit(f"ZTORCH_REQUIRE_PEERS is set, but missing: {missing}", returncode=3)


def keep_temporary_files_together(config: pytest.Config) -> None:
    """In one folder that goes when the run ends: examples write files, and clang leaves an empty folder
    behind for each text that it compiles for AMD's chips. Those of `tmp_path` stay where they are."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="ztorch_tests_")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: each worker holds two GiB, and more of them find little more to do at once."""
    return min(4, os.cpu_count() or 1)


@pytest.fixture(autouse=True, scope="module")
def short_collections() -> Iterator[None]:
    """Keeps objects from before a file (thousands of parametrised tests, PyTorch) out of its garbage
    collections: they take seconds to traverse, and many tests collect."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Nothing here may talk to anyone."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a test tried to reach the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield


# What C is compiled with for users.
C_FLAGS, WEB_COMPILER = cc.FLAGS, wasm.COMPILER
UNOPTIMIZED = {"-O2": "-O0"}


@pytest.fixture(autouse=True, scope="session")
def unoptimized_c() -> Iterator[None]:
    """C and WebAssembly are compiled in a quarter of the time, without optimization: most of it runs once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cc, "FLAGS", (*(UNOPTIMIZED.get(flag, flag) for flag in C_FLAGS),))
        patch.setattr(wasm, "COMPILER", (*(UNOPTIMIZED.get(flag, flag) for flag in WEB_COMPILER),
                                         "-fno-sanitize=undefined"))  # which Zig adds without optimization
        yield


@pytest.fixture
def optimized_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users."""
    monkeypatch.setattr(cc, "FLAGS", C_FLAGS)
    monkeypatch.setattr(wasm, "COMPILER", WEB_COMPILER)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, which pages are opened in."""
    from tests.cases.browser import Browser

    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    """Losses, metrics and so on that a test defines are unknown to other tests: messages list the known ones."""
    before = [(family.known, {**family.known}) for family in Named.families]
    yield
    for known, members in before:
        for name in known.keys() - members.keys():
            if not known[name].__module__.startswith("ztorch."):  # ours are registered when first imported
                del known[name]
        known.update(members)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """Seeds the generators of a file by the name of the test: a test draws the same numbers alone and
    after others."""
    reseed(request.module, request.node.nodeid)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Beside the number of items, that of cases in those that group them."""
    passed = terminalreporter.stats.get("passed", [])
    counts = [value for report in passed for key, value in report.user_properties if key == "cases"]
    if counts:
        terminalreporter.write_line(f"{sum(counts)} cases passed in {len(counts)} of {len(passed)} tests")
