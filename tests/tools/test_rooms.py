"""docs/pictures/rooms.svg is the table of docs/rooms.md."""

from __future__ import annotations

from tools.rooms import ROOT, checked, floors, picture, places, table

TEXT = (ROOT / "docs/rooms.md").read_text()


def test_the_picture_is_up_to_date() -> None:
    drawn = (ROOT / "docs" / "pictures" / "rooms.svg").read_text()
    assert drawn == picture(TEXT), "run: python -m tools.rooms > docs/pictures/rooms.svg"


def test_the_picture_places_rooms_above_their_imports() -> None:
    _, rooms = table(TEXT)
    assert len(rooms) > 25 and checked(rooms, places(rooms))
    assert floors(rooms)["cli"] == max(floors(rooms).values())
    wrong = {**places(rooms), "cli": places(rooms)["ir"]}
    assert not checked(rooms, wrong)
