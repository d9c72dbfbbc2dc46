"""Documentation that fails: its examples are run, and what it must mention is looked up in the code."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import duly
from duly.config import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_DATABASE_URL", raising=False)
    module = type(sys)(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.findall(page.read_text(encoding="utf8")):
        exec(compile(block, page.name, "exec"), vars(module))
    if isinstance(app := vars(module).get("app"), duly.Duly):
        app.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def reference() -> str:
    return (ROOT / "docs" / "reference.md").read_text(encoding="utf8")


@pytest.mark.parametrize("name", [each.name for each in fields(Settings)])
def test_every_setting_is_documented_with_its_default_and_alias(name: str) -> None:
    (setting,) = [each for each in fields(Settings) if each.name == name]
    row = re.search(rf"^\| `{name}` .*$", reference(), re.MULTILINE)
    assert row, f"docs/reference.md does not tell of {name}"
    if name != "cpu_slots":
        assert f"`{setting.default}`" in row[0], f"the default of {name} is {setting.default}"
    if setting.metadata["alias"]:
        assert setting.metadata["alias"] in row[0]


@pytest.mark.parametrize("name", duly.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"`{name}\b", reference()), name


def test_every_metric_is_documented() -> None:
    source = (ROOT / "src" / "duly" / "telemetry.py").read_text(encoding="utf8")
    for name in set(re.findall(r'"(duly_[a-z_]+)"', source)):
        assert name in reference(), name


def test_every_command_and_option_is_documented() -> None:
    import click

    from duly.cli import main

    text = reference()

    def walk(command: click.Command, path: str) -> None:
        assert path in text, f"docs/reference.md does not tell of `{path}`"
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                walk(inner, f"{path} {name}")

    assert isinstance(main, click.Group)
    for name, command in main.commands.items():
        walk(command, f"duly {name}")


def test_the_readme_stays_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf8").splitlines()) <= 70
