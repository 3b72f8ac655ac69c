"""The fields of an artifact's manifest as tables of docs/artifacts.md, from the records themselves.

    python -m tools.artifact_fields      # writes the part between the marks of the page anew
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import sys
import textwrap
import tokenize
from pathlib import Path
from typing import Any

from ztorch.files.kinds import ListOf, MapOf, OneOrNamed, OrNone
from ztorch.files.schema import Record
from ztorch.runtime.manifest import Manifest, MemberEntry, TargetEntry
from ztorch.runtime.snapshot import (
    Curves,
    Declaration,
    IdRange,
    LayerRow,
    Metadata,
    NamedConfig,
    Training,
    WeightRow,
)
from ztorch.runtime.spec import FunctionSpec, LaunchSpec, ProgramSpec, StateSpec, TensorSpec
from ztorch.runtime.state_order import StateOrder
from ztorch.tabular.record import (
    ColumnRecord,
    EncoderRecord,
    PipelineRecord,
    TargetRecord,
    TextRecord,
)

PAGE = Path(__file__).parents[1] / "docs" / "artifacts.md"
BEGIN, END = "<!-- fields: python -m tools.artifact_fields -->", "<!-- end of fields -->"
RECORDS: dict[type[Record], str] = {  # in the order of the page, with their paths
    Manifest: "the whole",
    MemberEntry: "`files.NAME`",
    TargetEntry: "`targets[]`",
    ProgramSpec: "`targets[].spec`",
    FunctionSpec: "`targets[].spec.functions[]`",
    TensorSpec: "`inputs[]` and `outputs[]` of a function",
    LaunchSpec: "`launches[]` of a function",
    StateSpec: "`targets[].spec.states[]`",
    StateOrder: "`order` of a state",
    Metadata: "`program`",
    Declaration: "`program.declaration`",
    NamedConfig: "`loss`, `metrics[]` and `optimizer` of these two",
    IdRange: "`program.input_range`",
    WeightRow: "`program.weights[]`",
    LayerRow: "`program.layers[]`",
    PipelineRecord: "`program.pipeline`",
    ColumnRecord: "`program.pipeline.columns[]`",
    TargetRecord: "`program.pipeline.target`",
    EncoderRecord: "`program.pipeline.encoder`",
    TextRecord: "`program.texts`",
    Training: "`training`",
    Curves: "`training.history`",
}


def tables() -> str:
    """A table for each record."""
    parts = []
    for record, place in RECORDS.items():
        summary = (inspect.getdoc(record) or "").replace("\n", " ")
        lines = [f"### {record.__name__}: {place}", "", summary, "",
                 "| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [f"| `{key}` | {says} | {default} | {comment} |"
                  for key, says, default, comment in rows(record)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def rows(record: type[Record]) -> list[tuple[str, str, str, str]]:
    """Key, values, default and meaning of each field."""
    meanings = comments(record)
    return [(name.rstrip("_"), re.sub(r"\ba (?=[AEIO])", "an ", field.kind.says),
             f"`{json.dumps(field.kind.to_json(field.default))}`" if field.has_default else "",
             meanings[name]) for name, field in record.fields.items()]


def comments(record: type[Record]) -> dict[str, str]:
    """The comment beside each field, those of the classes it derives from included."""
    beside: dict[str, str] = {}
    for owner in reversed(record.__mro__):
        if owner in (object, Record):
            continue
        source = textwrap.dedent(inspect.getsource(owner))
        lines = {token.start[0]: token.string.lstrip("# ") for token in
                 tokenize.generate_tokens(io.StringIO(source).readline)
                 if token.type == tokenize.COMMENT}
        definition = ast.parse(source).body[0]
        assert isinstance(definition, ast.ClassDef)
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                beside[statement.target.id] = lines[statement.lineno]
    return beside


def records_below(kind: Any) -> set[type[Record]]:
    """The records that values of a kind are made of."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return {kind}.union(*(records_below(f.kind) for f in kind.fields.values()))
    inner = [getattr(kind, name) for name in ("kind", "listed") if hasattr(kind, name)]
    assert inner or not isinstance(kind, (ListOf, MapOf, OneOrNamed, OrNone))
    return set().union(*map(records_below, inner)) if inner else set()


def page() -> str:
    """The page with its tables made again."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest and after, f"{PAGE} lost the marks around its tables"
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"Wrote {PAGE}", file=sys.stderr)
