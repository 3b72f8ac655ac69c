"""C libraries that generate: a C program gets the same results as Python."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from tests.cases.c_programs import WARN, needs_gcc, run
from tests.cases.generating import LENGTH, MODELS, WORDS, compiled
from ztorch.compile.c_library import export_c

pytestmark = needs_gcc


def test_a_library_generates(tmp_path: Path) -> None:
    """Two prompts are read in one call and continued in another, with numbers that end them."""
    export_c(MODELS["recurrent"]().trace(2, decode=2), tmp_path)
    run("gcc", *WARN, "writer_example.c", "libwriter.a", "-o", "example", cwd=tmp_path)
    run("./example", cwd=tmp_path)
    prompts, wanted = [[1, 2, 3], [4]], LENGTH - 3
    library = ctypes.CDLL(str(tmp_path / "libwriter.so"))

    def call(function: str, *arrays: np.ndarray) -> None:
        getattr(library, function)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))

    x = np.zeros((2, LENGTH), np.int32)
    for k, prompt in enumerate(prompts):
        x[k, :len(prompt)] = prompt
    position, tokens, after = (np.zeros(shape, np.int32) for shape in (2, (2, LENGTH), 2))
    call("writer_prefill", x, np.int32([3, 1]), position)
    assert position.tolist() == [2, 0]
    stops = np.zeros(WORDS, np.uint8)
    stops[5] = 1
    call("writer_generate", np.int32([3, 4]), position, np.ones(2, np.uint8), np.uint32([0]),
         np.int32([wanted]), np.uint32([[8, 9], [0, 0]]), np.float32([0.9]), np.int32([4]),
         np.float32([0.95]), np.float32([1.0]), np.zeros((2, WORDS), np.uint8), stops, tokens, after)
    want = compiled("recurrent", rows=2).generate(prompts, wanted, temperature=0.9, top_k=4, top_p=0.95,
                                               stop=5, seed=8)
    assert [[t for t in row if t >= 0] for row in tokens.tolist()] == [t.tolist() for t in want]
    assert after.tolist() == [len(p) - 1 + len(t) for p, t in zip(prompts, want, strict=True)]
