"""ztorch run: predicts with an artifact, or another model that has learned something."""

from __future__ import annotations

from ztorch.commands import data, named_arrays
from ztorch.commands.programs import program_of
from ztorch.errors import ConfigError


def run(model: str, source: str, out: str | None, classes: bool, threads: int | None) -> None:
    """Predicts from a file of rows, and writes the outputs or the classes."""
    data.need_writable(out, (".npy", ".csv", ".txt", ".npz"))
    program = program_of(model, threads)
    names = list(named_arrays.of_program(program).outputs)
    if names == [""] and out is not None and out.endswith(".npz"):
        raise ConfigError(f"cannot write {out}: the only output has no name; write it to .npy or "
                          ".csv")
    y = program.predict(data.read_inputs(source, program))
    outputs = [y] if names == [""] else list(y.values()) if isinstance(y, dict) else y
    outputs = [output.argmax(-1) if classes else output for output in outputs]
    if names == [""]:
        data.write(out, outputs[0])
    else:
        named_arrays.write(out, dict(zip(names, outputs, strict=True)))
    if out:
        print(f"Wrote {out}: {len(outputs[0])} rows")
