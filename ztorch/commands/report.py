"""ztorch report: one page that shows how good a model is, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from ztorch.commands.group import examples
from ztorch.commands.option_types import ModelName


@click.command()
@click.argument("artifact", type=ModelName(), metavar="MODEL")
@click.option("--data", "data_name", required=True, metavar="DATA", help="Rows whose answers are "
              "known: a table with the target, a data set, an .npz or a folder of images or "
              "sounds.")
@click.option("-o", "--out", type=click.Path(), metavar="FILE.html",
              help="The page to write. Default: MODEL.html.")
@click.option("--output", metavar="NAME", help="The output that the page is about, of several.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Worker threads on a CPU.")
@examples("""ztorch report titanic.zt --data test.csv
             ztorch report digits_mlp --data digits -o digits.html
             ztorch report faces.zt --data faces.npz --output age""")
def report(artifact: str, data_name: str, out: str | None, output: str | None,
           threads: int | None) -> None:
    """Write a page about how good a model is.

    One HTML file without links: curves of training, confusion matrix, worst errors with their
    inputs, calibration, importance of columns, and the plan with its memory.
    """
    from ztorch.codegen.templates import environment
    from ztorch.commands import data
    from ztorch.commands.programs import program_of
    from ztorch.commands.report_data import evaluate_rows
    from ztorch.commands.report_page import page_values
    from ztorch.files.atomic import write_atomic
    from ztorch.terminal.work_line import at, working

    path = out or str(Path(artifact).with_suffix(".html"))
    data.need_writable(path, (".html",))
    with working(f"report {artifact}"):
        program = program_of(artifact, threads)
        at("predict")
        evaluated = evaluate_rows(program, data_name, artifact, output)
        at("measure and draw")
        page = environment().get_template("report/report.html.j2").render(
            artifact=Path(artifact).name, data=data_name, **page_values(evaluated))
    write_atomic(path, page.encode())
    print(f"Wrote {path} ({Path(path).stat().st_size:,} bytes)")
