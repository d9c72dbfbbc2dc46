"""A folder as a source: one scanner gets a file, nothing leads out, nothing half-written is taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duly.bulk.sources import Changed, Found, SourceError, Steady
from duly.bulk.sources.folder import Folder, Taken
from duly.errors import InputError
from tests.bulk.read.child import ROOT


def take(folder: Folder, name: str) -> Taken:
    (found,) = [found for found in folder.scan() if found.name == name]
    taken = folder.take(found)
    assert taken is not None
    return taken


def test_a_file_is_found_taken_read_and_put_with_the_done_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n")
    folder = Folder(tmp_path)
    (found,) = folder.scan()
    assert (found.name, found.size) == ("a.csv", 8)
    taken = folder.take(found)
    assert taken is not None
    assert folder.scan() == []
    assert b"".join(taken.portions()) == b"a,b\n1,2\n"
    assert taken.done() == tmp_path / "done" / "a.csv"
    assert (tmp_path / "done" / "a.csv").read_bytes() == b"a,b\n1,2\n"


def test_a_file_that_failed_has_a_note_beside_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for _ in range(2):
        (tmp_path / "a.csv").write_bytes(b"x")
        take(folder, "a.csv").failed("has no rows")
    names = sorted(path.name for path in (tmp_path / "failed").iterdir())
    assert names == ["a-2.csv", "a-2.csv.reason.txt", "a.csv", "a.csv.reason.txt"]
    assert (tmp_path / "failed" / "a.csv.reason.txt").read_text() == "has no rows\n"


@pytest.mark.parametrize("name", [".taken", "done", "failed"])
def test_a_link_in_place_of_a_folder_of_ours_leads_nowhere(tmp_path: Path, name: str) -> None:
    inbox, outside = tmp_path / "inbox", tmp_path / "outside"
    inbox.mkdir()
    outside.mkdir()
    for target in (outside, tmp_path / "nowhere"):
        (inbox / name).symlink_to(target)
        with pytest.raises(SourceError, match=f"{name} in the inbox is not a folder"):
            Folder(inbox)
        (inbox / name).unlink()
    (inbox / name).touch()
    with pytest.raises(SourceError, match="remove it"):
        Folder(inbox)


def test_a_note_does_not_follow_or_change_what_has_its_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    notes = tmp_path / "failed" / "a.csv.reason.txt", tmp_path / "failed" / "b.csv.reason.txt"
    notes[0].symlink_to(tmp_path / "outside")
    notes[1].write_text("mine")
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"x")
        assert take(folder, name).failed("has no rows").exists()
    assert not (tmp_path / "outside").exists()
    assert notes[1].read_text() == "mine"


def test_links_folders_pipes_hidden_and_unfinished_files_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text("secret")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "link.csv").symlink_to(outside / "secret.csv")
    (inbox / "folder.csv").mkdir()
    os.mkfifo(inbox / "pipe.csv")
    for name in (".hidden.csv", "a.csv.part", "b.csv.TMP", "~lock.csv", "good.csv"):
        (inbox / name).write_text("x")
    folder = Folder(inbox)
    assert [found.name for found in folder.scan()] == ["good.csv"]
    for name in ("link.csv", "folder.csv", "pipe.csv"):
        assert folder.take(Found(name, name, 6, "any")) is None
    for name in ("../outside/secret.csv", "..", "", "a\0b"):
        with pytest.raises(InputError, match="is not the name of a file"):
            folder.take(Found(name, name, 6, "any"))


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    (found,) = folder.scan()
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.csv").symlink_to("/etc/passwd")
    assert folder.take(found) is None


def test_a_version_that_has_changed_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    (found,) = folder.scan()
    (tmp_path / "a.csv").write_text("xy")
    assert folder.take(found) is None
    (tmp_path / "a.csv").unlink()
    assert folder.take(found) is None


def test_of_many_scanners_one_gets_a_file(tmp_path: Path) -> None:
    folders = [Folder(tmp_path) for _ in range(8)]
    for round_ in range(20):
        (tmp_path / f"{round_}.csv").write_text("x")
        found = folders[0].scan()[0]
        with ThreadPoolExecutor(8) as pool:
            taken = [each for each in pool.map(lambda folder, found=found: folder.take(found), folders) if each]
        assert len(taken) == 1
        taken[0].done()
    assert len(list((tmp_path / "done").iterdir())) == 20


def test_a_file_that_is_written_to_while_it_is_read_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    with (tmp_path / "a.csv").open("a") as slow:
        taken = take(folder, "a.csv")
        slow.write("y")
        slow.flush()
        with pytest.raises(Changed, match=r"a\.csv was written to while it was read"):
            list(taken.portions())
    assert taken.release() == tmp_path / "a.csv"
    assert [found.size for found in folder.scan()] == [2]


def test_a_growing_file_is_left_alone_until_it_is_steady() -> None:
    steady = Steady(settle=5.0)
    growing = [Found("a", "a", size, f"v{size}") for size in (1, 2, 3)]
    for now, found in zip((0.0, 3.0, 6.0), growing, strict=True):
        steady = steady.after([found], now)
        assert not steady.is_ready(found, now)
    steady = steady.after([growing[2]], 10.9)
    assert not steady.is_ready(growing[2], 10.9)
    assert steady.is_ready(growing[2], 11.0)
    assert not steady.is_ready(Found("b", "b", 1, "v"), 11.0), "what was never seen is not known to be steady"
    assert steady.after([], 12.0).since == {}


def test_a_file_that_takes_the_name_at_the_last_moment_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("old")
    folder, rename = Folder(tmp_path), Path.rename
    (found,) = folder.scan()

    def overtaken(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        (tmp_path / "new").write_text("newer")
        os.replace(tmp_path / "new", tmp_path / "a.csv")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    assert folder.take(found) is None
    assert (tmp_path / "a.csv").read_text() == "newer"
    assert list((tmp_path / ".taken").iterdir()) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_a_move_never_replaces_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    folder, link = Folder(tmp_path), os.link
    (tmp_path / "a.csv").write_text("mine")
    taken = take(folder, "a.csv")

    def overtaken(source: Path, target: Path, **more: bool) -> None:
        if not has_links:
            raise PermissionError
        if not target.exists() and target.name == "a.csv":
            target.write_text("theirs")
        link(source, target, **more)

    monkeypatch.setattr(os, "link", overtaken)
    assert taken.done().read_text() == "mine"
    told = {path.name: path.read_text() for path in (tmp_path / "done").iterdir()}
    assert told == ({"a.csv": "theirs", "a-2.csv": "mine"} if has_links else {"a.csv": "mine"})


def test_a_file_with_two_names_is_put_back_as_the_same_version(tmp_path: Path) -> None:
    """As a scanner leaves it that dies in the middle of a move."""
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    os.link(tmp_path / "a.csv", tmp_path / ".taken" / "0-a.csv")
    assert folder.put_back() == ["a.csv"]
    assert len({found.version for found in folder.scan()}) == 1


def test_what_is_moved_away_meanwhile_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    taken = take(Folder(tmp_path), "a.csv")
    for left in (tmp_path / ".taken").iterdir():
        left.unlink()
    with pytest.raises(SourceError, match="could not be moved to done"):
        taken.done()


def test_a_file_that_cannot_be_taken_is_told_and_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    (found,) = folder.scan()
    (tmp_path / ".taken").rmdir()
    with pytest.raises(SourceError, match=r"a\.csv could not be taken: No such file or directory"):
        folder.take(found)
    (tmp_path / ".taken").mkdir()
    assert take(folder, "a.csv").found == found


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        Folder(tmp_path / "nowhere")


HOLD = """
import sys, time
from pathlib import Path
from duly.bulk.sources.folder import Folder
folder = Folder(Path(sys.argv[1]))
taken = folder.take(folder.scan()[0])
print("taken", flush=True)
time.sleep(60)
"""


def test_a_file_of_a_killed_scanner_is_put_back_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    folder = Folder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        assert folder.put_back() == []
        assert folder.scan() == []
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert folder.put_back() == ["a.csv"]
    assert [found.name for found in folder.scan()] == ["a.csv"]
