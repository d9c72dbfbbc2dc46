"""Documentation that fails: its examples are run, and what it must mention is looked up in the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import duly
from duly.core.settings import JobSettings, Settings
from duly.plugin import plugins
from tests.docs.pages import PAGES, ROOT, Example, blocks, definitions, examples
from tests.process.fleet import until
from tests.support import counts, opened


def alone(folder: Path) -> dict[str, str]:
    """The environment of a process that knows nothing of this one, beyond where it is measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DULY_")} | {"HOME": str(folder)}


def write_files(page: Path, folder: Path) -> None:
    """The tables and the screen of the plug-in that docs/apps.md builds, in the folders where it looks for them."""
    if page.stem == "apps":
        text = page.read_text(encoding="utf8")
        (sql,), (screen,) = (
            re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for kind in ("sql", "js")
        )
        (folder / "static").mkdir()
        (folder / "static" / "texts.js").write_text(screen, encoding="utf8")
        for database in ("sqlite", "postgres"):
            (folder / "migrations" / database).mkdir(parents=True)
            (folder / "migrations" / database / "0001_sent.sql").write_text(sql, encoding="utf8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_DATABASE_URL", raising=False)
    module = type(sys)(f"page_{page.stem}")
    module.__file__ = str(tmp_path / f"{module.__name__}.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    write_files(page, tmp_path)
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), vars(module))
    if isinstance(app := vars(module).get("app"), duly.Duly):
        app.close()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_each_example_runs_by_itself_in_a_fresh_process_on_a_fresh_database(example: Example, tmp_path: Path) -> None:
    """What it builds on is imported, as a reader would do who saved that as a file of his own."""
    write_files(example.page, tmp_path)
    (tmp_path / "before.py").write_text(example.before, encoding="utf8")
    (tmp_path / "example.py").write_text(f"from before import *\n{example.text}", encoding="utf8")
    ended = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=alone(tmp_path), capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if definitions(page)], ids=lambda page: page.name)
def test_an_example_app_may_be_imported_as_often_as_workers_like(page: Path, tmp_path: Path) -> None:
    """By a worker, by `--app` and by each process of cpu tasks: nothing is put, and no database is made."""
    write_files(page, tmp_path)
    (tmp_path / "app.py").write_text(definitions(page), encoding="utf8")
    twice = "import runpy; runpy.run_path('app.py'); runpy.run_path('app.py')"
    subprocess.run([sys.executable, "-c", twice], cwd=tmp_path, env=alone(tmp_path), check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".py" and path.is_file()) == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "start.md"], ids=lambda page: page.name)
def test_the_first_example_is_put_and_worked_on_as_the_page_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(blocks(page)[0], encoding="utf8")
    env = alone(tmp_path) | {"DULY_HTTP_PORT": "0"}
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=env, check=True, timeout=60)
    with opened(f"sqlite:///{tmp_path / 'duly.db'}") as store:
        before = sum(counts(store).values())
        assert before > 0
        command = [sys.executable, "-m", "duly.cli", "worker", "app.py:app"]
        with (tmp_path / "log").open("w") as log:
            worker = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
        try:
            until(lambda: "started" in (tmp_path / "log").read_text() or worker.poll() is not None)
            worker.terminate()
            assert worker.wait(60) == 0, (tmp_path / "log").read_text()
        finally:
            worker.kill()
            worker.wait()
        assert sum(counts(store).values()) == before


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of each page as one file."""
    folder = tmp_path_factory.mktemp("pages")
    for page in PAGES:
        if text := "\n\n".join(blocks(page)):
            (folder / f"{page.stem.lower()}_page.py").write_text(text, encoding="utf8")
    return folder


def test_mypy_has_nothing_to_say_about_any_example(written: Path) -> None:
    checked([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(written / "cache"), "."], written)


def test_pyright_has_nothing_to_say_about_any_example(written: Path) -> None:
    (written / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportUnusedImport": false}')
    checked([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "."], written)


def checked(command: list[str], folder: Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def reference() -> str:
    return (ROOT / "docs" / "reference.md").read_text(encoding="utf8")


PAGE_OF = {"deliver": "http"}  # the pages of apps that are not called like their app
SECTIONS = {
    "reference": (Settings, JobSettings),
    **{PAGE_OF.get(name, name): (plugin.settings,) for name, plugin in plugins().items()},
}


@pytest.mark.parametrize("page", SECTIONS)
def test_every_setting_is_documented_with_its_default_alias_and_text(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf8")
    text = text[max(text.find("\n## Settings\n"), 0) :]  # options of tasks may have the same name
    for name, setting in ((name, each) for kind in SECTIONS[page] for name, each in kind.known().items()):
        row = re.search(rf"^\| `{name}` .*$", text, re.MULTILINE)
        assert row, f"docs/{page}.md does not list the setting {name}"
        if name != "cpu_slots":
            assert f"`{setting.default}`" in row[0], f"the default of {name} is {setting.default}"
        assert setting.metadata["alias"] is None or f"`{setting.metadata['alias']}`" in row[0]
        assert setting.metadata["doc"] in row[0]


def test_the_reference_lists_no_setting_of_an_app() -> None:
    for plugin in plugins().values():
        for name in plugin.settings.known():
            assert f"\n| `{name}` |" not in reference(), f"{name} belongs on the page of {plugin.name}"


@pytest.mark.parametrize("name", duly.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"`{name}\b", reference()), name


def test_every_metric_is_documented() -> None:
    files = (ROOT / "src" / "duly" / "telemetry").glob("*.py")
    source = "".join(path.read_text(encoding="utf8") for path in files)
    for name in set(re.findall(r'"(duly_[a-z_]+)"', source)):
        assert name in reference(), name


def test_every_command_and_option_is_documented() -> None:
    import click

    from duly.cli import main

    text = reference()

    def walk(command: click.Command, path: str) -> None:
        assert path in text, f"docs/reference.md does not tell of `{path}`"
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{path} {name}")

    walk(main, "duly")


def test_the_readme_stays_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf8").splitlines()) <= 70
