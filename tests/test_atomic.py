import os
import subprocess
import sys

import pytest

from bagwise import atomic
from bagwise.errors import OutputExistsError


def always(_path):
    return True


def write(target, text, *, force=False, replaceable=always):
    with atomic.new_directory(target, force=force, replaceable=replaceable) as draft:
        (draft / "file").write_text(text)


def test_the_directory_appears_whole(tmp_path):
    target = tmp_path / "deep" / "out"
    write(target, "new")
    assert (target / "file").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_a_failure_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        atomic.new_directory(tmp_path / "out", force=False, replaceable=always) as draft,
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
        atomic.new_directory(target, force=True, replaceable=always),
    ):
        raise RuntimeError
    assert (target / "file").read_text() == "old"


def test_force_does_not_delete_what_is_not_ours(tmp_path):
    target = tmp_path / "home"
    write(target, "precious")
    with pytest.raises(OutputExistsError, match="not a bagwise release"):
        write(target, "new", force=True, replaceable=lambda _: False)
    assert (target / "file").read_text() == "precious"


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
        atomic.check_target(target, force=False, replaceable=always)
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_run_that_is_still_writing_is_left_alone(tmp_path):
    busy = tmp_path / f".out.{os.getpid()}-0123abcd.new"
    busy.mkdir()
    atomic.check_target(tmp_path / "out", force=False, replaceable=always)
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
