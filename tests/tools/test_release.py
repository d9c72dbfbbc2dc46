"""tools/release refuses what must not be released, and leaves the tree as it was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pythons import OLDEST, interpreters

ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = Path("src/duly/__init__.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with what the command reads, and one commit."""
    tree = tmp_path / "duly"
    for name in ("tools/release", "tools/pythons.py", str(VERSION), "CHANGELOG.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    git(tree, "init", "--quiet")
    commit(tree)
    return tree


def git(tree: Path, *arguments: str) -> str:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(["git", *who, *arguments], cwd=tree, check=True, capture_output=True, text=True).stdout


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "all")


def refused(tree: Path, version: str) -> str:
    """What the command says; the tree must be as it was."""
    before = (tree / VERSION).read_text(), (tree / "CHANGELOG.md").read_text(), git(tree, "status", "--porcelain")
    ran = subprocess.run(["python3", "tools/release", version], cwd=tree, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    after = (tree / VERSION).read_text(), (tree / "CHANGELOG.md").read_text(), git(tree, "status", "--porcelain")
    assert after == before
    return ran.stderr


def test_a_word_that_is_no_version_is_refused(tree: Path) -> None:
    assert "'next' is not a version such as 0.3.0" in refused(tree, "next")


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "notes.txt").write_text("not committed")
    assert "the working tree has changes" in refused(tree, "9.9.9")


def test_a_version_that_was_tagged_is_refused(tree: Path) -> None:
    git(tree, "tag", "v9.9.9")
    assert "the tag v9.9.9 exists already" in refused(tree, "9.9.9")


def test_a_changelog_without_unreleased_changes_is_refused_and_the_version_is_put_back(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-01\n\n- First.\n")
    commit(tree)
    assert "has nothing under '## Unreleased'" in refused(tree, "9.9.9")


def test_the_interpreters_of_this_machine_are_found_oldest_first() -> None:
    found = interpreters()
    versions = [tuple(map(int, name.split("."))) for name in found]
    assert versions == sorted(versions)
    assert versions[0] >= OLDEST
    for name, path in found.items():
        answer = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
        assert answer.startswith(f"Python {name}.")
