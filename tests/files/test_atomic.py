import os
import subprocess
import sys

import pytest

from bagwise.errors import OutputExistsError
from bagwise.files import atomic

ANY = atomic.DirectoryKind("a bagwise release", frozenset({"file"}), lambda _path: True)
NONE = atomic.DirectoryKind("a bagwise release", frozenset({"file"}), lambda _path: False)


def write(target, text, *, force=False, kind=ANY):
    with atomic.new_directory(target, force=force, kind=kind) as draft:
        (draft / "file").write_text(text)


def test_the_directory_appears_whole(tmp_path):
    target = tmp_path / "deep" / "out"
    write(target, "new")
    assert (target / "file").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_a_failure_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        atomic.new_directory(tmp_path / "out", force=False, kind=ANY) as draft,
    ):
        (draft / "file").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("can_exchange", [True, False])
def test_force_replaces_in_one_step(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    target = tmp_path / "out"
    write(target, "old")
    with pytest.raises(OutputExistsError, match="--force"):
        write(target, "new")
    assert (target / "file").read_text() == "old"
    write(target, "new", force=True)
    assert (target / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_replacement_keeps_the_old_one(tmp_path):
    target = tmp_path / "out"
    write(target, "old")
    with (
        pytest.raises(RuntimeError),
        atomic.new_directory(target, force=True, kind=ANY),
    ):
        raise RuntimeError
    assert (target / "file").read_text() == "old"


def test_force_does_not_delete_what_is_not_ours(tmp_path):
    target = tmp_path / "home"
    write(target, "precious")
    with pytest.raises(OutputExistsError, match="not a bagwise release"):
        write(target, "new", force=True, kind=NONE)
    assert (target / "file").read_text() == "precious"


def no_exchange(*_paths):
    return False


STRANGERS = {
    "file": lambda path: path.write_text("thesis"),
    "directory": lambda path: path.mkdir(),
    "symbolic link": lambda path: path.symlink_to("file"),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_force_deletes_nothing_beside_known_files(tmp_path, what):
    target = tmp_path / "out"
    write(target, "old")
    STRANGERS[what](target / "thesis")
    with pytest.raises(OutputExistsError, match=f"holds the {what} 'thesis'"):
        write(target, "new", force=True)
    assert {path.name for path in target.iterdir()} == {"file", "thesis"}
    assert (target / "file").read_text() == "old"


def test_a_link_in_place_of_a_known_file_or_of_the_directory_is_refused(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (tmp_path / "precious").write_text("precious")
    (target / "file").symlink_to(tmp_path / "precious")
    with pytest.raises(OutputExistsError, match="symbolic link 'file'"):
        write(target, "new", force=True)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OutputExistsError, match="is a symbolic link"):
        write(tmp_path / "link", "new", force=True)
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("exchange", [atomic._exchange, no_exchange], ids=["one step", "two"])
def test_what_is_added_between_check_and_move_survives(tmp_path, monkeypatch, exchange):
    target = tmp_path / "out"
    write(target, "old")
    move = atomic._move_in

    def move_late(draft, target, kind):
        (target / "thesis").write_text("precious")
        move(draft, target, kind)

    monkeypatch.setattr(atomic, "_exchange", exchange)
    monkeypatch.setattr(atomic, "_move_in", move_late)
    with pytest.raises(OutputExistsError, match="'thesis'"):
        write(target, "new", force=True)
    assert (target / "thesis").read_text() == "precious"
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_left_is_removed_but_nothing_added_to_it(tmp_path):
    left = tmp_path / f".out.{dead_process_id()}-0123abcd.new"
    left.mkdir()
    (left / "file").write_text("half")
    (left / "thesis").write_text("precious")
    atomic.check_target(tmp_path / "out", force=False, kind=ANY)
    assert [path.name for path in left.iterdir()] == ["thesis"]


def test_a_file_in_the_way_is_refused_and_an_empty_directory_is_not(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(OutputExistsError, match="is a file"):
        write(tmp_path / "taken", "new")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "new")
    assert (tmp_path / "empty" / "file").read_text() == "new"


def dead_process_id():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_next_run_puts_back_what_a_killed_one_moved_aside(tmp_path):
    target, pid = tmp_path / "out", dead_process_id()
    aside = tmp_path / f".out.{pid}-0123abcd.old"
    aside.mkdir()
    (aside / "file").write_text("old")
    half = tmp_path / f".out.{pid}-0123abce.new"
    half.mkdir()
    with pytest.raises(OutputExistsError):
        atomic.check_target(target, force=False, kind=ANY)
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_run_that_is_still_writing_is_left_alone(tmp_path):
    busy = tmp_path / f".out.{os.getpid()}-0123abcd.new"
    busy.mkdir()
    atomic.check_target(tmp_path / "out", force=False, kind=ANY)
    assert busy.is_dir()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "model.json"
    with atomic.new_file(target, force=False) as draft:
        draft.write_text("one")
    with (
        pytest.raises(OutputExistsError, match="already exists"),
        atomic.new_file(target, force=False),
    ):
        pass
    with pytest.raises(RuntimeError), atomic.new_file(target, force=True) as draft:
        draft.write_text("tw")
        raise RuntimeError
    assert target.read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_only_regular_files_are_replaced_and_links_are_followed(tmp_path):
    pipe, real, link = tmp_path / "pipe", tmp_path / "real", tmp_path / "link"
    os.mkfifo(pipe)
    with (
        pytest.raises(OutputExistsError, match="not a regular file"),
        atomic.new_file(pipe, force=True),
    ):
        pass
    real.write_text("old")
    link.symlink_to(real)
    with atomic.new_file(link, force=True) as draft:
        draft.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    with atomic.new_file(tmp_path / "deep" / "file", force=False) as draft:
        draft.write_text("made")
    assert (tmp_path / "deep" / "file").read_text() == "made"
