"""The page that says what is stable lists every public name, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duly

PAGE = (Path(__file__).parents[2] / "docs" / "stability.md").read_text(encoding="utf8")


def listed(title: str) -> list[str]:
    """The names in the paragraph with this title."""
    paragraph = PAGE.partition(f"**{title}**: ")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", paragraph)


def test_every_public_name_is_listed() -> None:
    assert listed("Names of `duly`") == sorted(duly.__all__, key=str.lower)


@pytest.mark.parametrize("kind", [duly.Duly, duly.Task])
def test_every_listed_attribute_is_there(kind: type) -> None:
    one = duly.Duly("sqlite:///unused.db")
    thing = one if kind is duly.Duly else one.task(name="ring")(lambda: None)
    names = listed(f"Attributes of `{kind.__name__}`")
    assert names == sorted(names)
    assert set(names) <= set(dir(thing))
    documented = [name for name in names if callable(getattr(kind, name, None))]
    assert all(getattr(kind, name).__doc__ for name in documented)
