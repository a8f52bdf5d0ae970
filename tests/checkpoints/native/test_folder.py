"""A folder that appears whole or not at all, and of which two do not get in each other's way."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from checkpoints.native.folder import new_folder


def taken(folder: Path) -> str | None:
    return "exists already"


def free(folder: Path) -> str | None:
    return None


def work_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.partial")


def tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write(destination, refuse=taken, text="new"):
    with new_folder(destination, refuse) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text(text)
        assert not destination.exists() or tree(destination) != {"deep/file": text}


def test_it_is_there_when_the_block_ends(tmp_path):
    write(tmp_path / "it")
    assert tree(tmp_path) == {"it/deep/file": "new"}


def test_nothing_is_left_of_a_block_that_fails(tmp_path):
    def fail():
        with new_folder(tmp_path / "it", taken) as folder:
            (folder / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_stays(tmp_path, make):
    make(tmp_path / "it")
    with pytest.raises(ValueError, match="it exists already"), new_folder(tmp_path / "it", taken):
        pytest.fail("the block must not begin")
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_what_comes_in_the_meantime_stays(tmp_path):
    def be_late():
        with new_folder(tmp_path / "it", taken):
            (tmp_path / "it").mkdir()
            (tmp_path / "it" / "other").write_text("theirs")

    with pytest.raises(ValueError, match="it exists already"):
        be_late()
    assert tree(tmp_path) == {"it/other": "theirs"}


def test_an_old_folder_stays_until_the_new_one_is_whole(tmp_path):
    write(tmp_path / "it", text="old")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "it", free):
        raise RuntimeError
    assert tree(tmp_path) == {"it/deep/file": "old"}
    write(tmp_path / "it", free)
    assert tree(tmp_path) == {"it/deep/file": "new"}


def test_a_second_one_to_the_same_place_is_refused_at_once(tmp_path):
    with new_folder(tmp_path / "it", taken) as folder:
        (folder / "file").write_text("first")
        with pytest.raises(ValueError, match=r"it is being written by another process, which holds .*lock"):
            write(tmp_path / "it")
        write(tmp_path / "other")
    assert tree(tmp_path) == {"it/file": "first", "other/deep/file": "new"}


def test_what_a_dead_process_left_is_removed(tmp_path):
    """Half of a new folder, and its lock, which nobody holds."""
    (work_of(tmp_path / "it") / "new" / "weights").mkdir(parents=True)
    (work_of(tmp_path / "it") / "lock").touch()
    write(tmp_path / "it")
    assert tree(tmp_path) == {"it/deep/file": "new"}


@pytest.mark.parametrize("refuse", [taken, free])
def test_death_between_the_two_renames(tmp_path, refuse):
    """Nothing is in the place then; whoever comes next puts the old folder back, and then does as it does with one."""
    work = work_of(tmp_path / "it")
    for name in ("old", "new"):
        (work / name).mkdir(parents=True)
        (work / name / "file").write_text(name)
    if refuse is free:
        write(tmp_path / "it", free)
        assert tree(tmp_path) == {"it/deep/file": "new"}
    else:
        with pytest.raises(ValueError, match="it exists already"):
            write(tmp_path / "it")
        assert tree(tmp_path) == {"it/file": "old"}


def test_what_came_after_death_between_the_two_renames(tmp_path):
    """The folder that was there lies in ``old`` alone: it comes back as soon as its place is free."""
    work = work_of(tmp_path / "it")
    for folder in (work / "old", work / "new", tmp_path / "it"):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name)
    for refuse in (taken, free):
        with pytest.raises(ValueError, match=r"what it was is in .*\.it\.partial/old: move either of them elsewhere"):
            write(tmp_path / "it", refuse)
        assert tree(tmp_path) == {".it.partial/old/file": "old", ".it.partial/new/file": "new", "it/file": "it"}
    (tmp_path / "it").rename(tmp_path / "theirs")
    with pytest.raises(ValueError, match="it exists already"):
        write(tmp_path / "it")
    assert tree(tmp_path) == {"it/file": "old", "theirs/file": "it"}


@pytest.mark.parametrize(("error", "told"), [(OSError, ValueError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_something_comes_between_the_two_renames(tmp_path, monkeypatch, error, told):
    """Then the old folder cannot come back at once, and must not be lost later."""
    write(tmp_path / "it", text="old")
    rename = Path.rename

    def be_late(path, target):
        if path.name == "new":
            (tmp_path / "it").mkdir()
            (tmp_path / "it" / "file").write_text("theirs")
            raise error
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", be_late)
        with pytest.raises(told):
            write(tmp_path / "it", free)
    with pytest.raises(ValueError, match="what it was is in"):
        write(tmp_path / "it", free)
    assert tree(tmp_path)[".it.partial/old/deep/file"] == "old"
    assert tree(tmp_path)["it/file"] == "theirs"


def test_death_after_the_second_rename(tmp_path):
    write(tmp_path / "it", text="whole")
    (work_of(tmp_path / "it") / "old").mkdir(parents=True)
    with pytest.raises(ValueError, match="it exists already"):
        write(tmp_path / "it")
    assert tree(tmp_path) == {"it/deep/file": "whole"}
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_a_lock_that_was_removed_as_it_was_waited_for_holds_nothing(tmp_path, monkeypatch):
    """Another process ends between our look at its lock and our hold of it: the file is not the lock any more."""
    flock, held = fcntl.flock, []

    def flock_late(descriptor, operation):
        if not held:
            (work_of(tmp_path / "it") / "lock").unlink()
        held.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    write(tmp_path / "it")
    assert len(held) == 2
    assert tree(tmp_path) == {"it/deep/file": "new"}


@pytest.mark.parametrize("error", [OSError(errno.EIO, os.strerror(errno.EIO)), KeyboardInterrupt()])
def test_a_rename_that_fails_brings_the_old_folder_back(tmp_path, monkeypatch, error):
    write(tmp_path / "it", text="old")
    rename = Path.rename

    def fail_for_new(path, target):
        if path.name == "new":
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises((ValueError, KeyboardInterrupt), match=r"^$|it could not be written: .*Input/output error"):
        write(tmp_path / "it", free)
    assert tree(tmp_path) == {"it/deep/file": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("full", ["mkdir", "fsync"])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch, full):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if full == "fsync" else (Path, "mkdir")), fail)
    with pytest.raises(ValueError, match=r"it could not be written: .*No space left on device"):
        write(tmp_path / "it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/it", "the folder .*no does not exist"),
        ("file/it", "the folder .*file does not exist"),
        ("..", "it must be the name of a new folder"),
        ("x" * 250, "could not be written: .*File name too long"),
    ],
)
def test_places_where_no_folder_can_be(tmp_path, name, message):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=message):
        write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_is_read_only(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ValueError, match=r"it could not be written: .*Permission denied"):
        write(tmp_path / "closed" / "it")
