"""docs/artifacts.md lists every field of the manifest, as the records declare it."""

from __future__ import annotations

from tools import artifact_fields as tool
from ztorch.runtime.manifest import VERSION, Manifest


def test_the_tables_are_those_of_the_records() -> None:
    assert tool.PAGE.read_text() == tool.page(), "run python -m tools.artifact_fields"


def test_every_record_of_the_manifest_has_a_table() -> None:
    assert tool.records_below(Manifest) == set(tool.RECORDS)


def test_every_field_is_documented() -> None:
    for record in tool.RECORDS:
        for key, says, _, meaning in tool.rows(record):
            assert says and meaning, f"{record.__name__}.{key} has no comment beside it"


def test_the_page_names_the_version_that_is_written() -> None:
    assert f"This ztorch writes version {VERSION}" in tool.PAGE.read_text()
