import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bagwise.errors import OutputError, OutputExistsError
from bagwise.files import atomic, locks

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
    with pytest.raises(OutputExistsError, match="holds 'thesis'"):
        write(target, "new", force=True)
    assert {path.name for path in target.iterdir()} == {"file", "thesis"}
    assert (target / "file").read_text() == "old"


def test_a_link_in_place_of_a_known_file_or_of_the_directory_is_refused(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (tmp_path / "precious").write_text("precious")
    (target / "file").symlink_to(tmp_path / "precious")
    with pytest.raises(OutputExistsError, match="holds 'file'"):
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


LEFT = ".out.0123456789abcdef"


def test_what_a_killed_run_left_is_removed_but_nothing_added_to_it(tmp_path):
    left = tmp_path / f"{LEFT}.new"
    left.mkdir()
    (left / "file").write_text("half")
    (left / "thesis").write_text("precious")
    atomic.check_target(tmp_path / "out", force=False, kind=ANY)
    assert [path.name for path in left.iterdir()] == ["thesis"]


def test_what_a_killed_run_left_for_another_target_is_removed_too(tmp_path):
    (tmp_path / f"{LEFT}.new").mkdir()
    (tmp_path / ".model.json.0123456789abcdef.part").write_text("half")
    atomic.check_target(tmp_path / "elsewhere", force=False, kind=ANY)
    with atomic.new_file(tmp_path / "other.json", force=False) as draft:
        draft.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_a_file_in_the_way_is_refused_and_an_empty_directory_is_not(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(OutputExistsError, match="is a file"):
        write(tmp_path / "taken", "new")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "new")
    assert (tmp_path / "empty" / "file").read_text() == "new"


def test_the_next_run_puts_back_what_a_killed_one_moved_aside(tmp_path):
    target = tmp_path / "out"
    aside = tmp_path / f"{LEFT}.old"
    aside.mkdir()
    (aside / "file").write_text("old")
    (tmp_path / f"{LEFT}.new").mkdir()
    with pytest.raises(OutputExistsError):
        atomic.check_target(target, force=False, kind=ANY)
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


WRITER = """
import sys, time
from pathlib import Path
from bagwise.files import atomic

kind = atomic.DirectoryKind("a bagwise release", frozenset({"file"}), lambda _path: True)
with atomic.new_directory(Path(sys.argv[1]), force=True, kind=kind) as draft:
    (draft / "file").write_text("first")
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "outside", [[], ["unshare", "--user", "--map-root-user", "--pid", "--fork"]]
)
def test_another_run_that_is_still_writing_is_left_alone(tmp_path, outside):
    """Also one in a container, whose process ids mean nothing here."""
    if outside and subprocess.run([*outside, "true"], check=False, capture_output=True).returncode:
        outside = []  # no namespaces here: the same process ids, and still a lock to respect
    command = [*outside, sys.executable, "-c", WRITER, tmp_path / "out"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "writing\n"
        (busy,) = tmp_path.glob(".out.*.new")
        atomic.check_target(tmp_path / "out", force=False, kind=ANY)
        write(tmp_path / "other", "second")
        assert (busy / "file").read_text() == "first"
        process.communicate("go on\n")
    assert process.returncode == 0
    assert (tmp_path / "out" / "file").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_where_there_are_no_locks_nothing_counts_as_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    left = tmp_path / f"{LEFT}.new"
    left.mkdir()
    write(tmp_path / "out", "new")
    assert left.is_dir()
    assert (tmp_path / "out" / "file").read_text() == "new"


def test_a_draft_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    first = []

    def swept_once(path):
        if not first:
            first.append(path)
            path.rmdir()
        return holding(path)

    holding = locks.holding
    monkeypatch.setattr(atomic, "holding", swept_once)
    write(tmp_path / "out", "new")
    assert first
    assert (tmp_path / "out" / "file").read_text() == "new"


@pytest.mark.parametrize("opened", [atomic.new_file, atomic.new_directory])
def test_a_signal_while_a_draft_is_made_leaves_none(tmp_path, monkeypatch, opened):
    locked = locks.holding

    def interrupted(path):
        os.kill(os.getpid(), signal.SIGINT)  # kept until the draft is known
        return locked(path)

    monkeypatch.setattr(atomic, "holding", interrupted)
    kind = {"kind": ANY} if opened is atomic.new_directory else {}
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "out", force=False, **kind):
        pytest.fail("the signal comes before the draft is used")
    assert list(tmp_path.iterdir()) == []


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_draft_is_private_and_what_leaves_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic.new_directory(tmp_path / "out", force=False, kind=ANY) as draft:
            atomic.create_private(draft / "file").write_text("x")
            assert (mode_of(draft), mode_of(draft / "file")) == (0o700, 0o600)
            assert draft.parent == tmp_path
        with atomic.new_file(tmp_path / "model", force=False) as draft:
            draft.write_text("x")
            assert mode_of(draft) == 0o600
            assert draft.parent == tmp_path
    finally:
        assert os.umask(before) == 0o027
    assert mode_of(tmp_path / "out") == 0o750
    assert mode_of(tmp_path / "out" / "file") == mode_of(tmp_path / "model") == 0o640


def test_a_link_that_appears_at_the_last_moment_stays(tmp_path, monkeypatch):
    write(tmp_path / "real", "old")
    move, target = atomic._move_in, tmp_path / "out"

    def move_late(draft, target, kind):
        target.symlink_to(tmp_path / "real")
        move(draft, target, kind)

    monkeypatch.setattr(atomic, "_move_in", move_late)
    with pytest.raises(OutputExistsError, match="is a symbolic link"):
        write(target, "new", force=True)
    assert target.is_symlink()
    assert (target / "file").read_text() == "old"


def test_a_rename_that_fails_puts_the_old_directory_back(tmp_path, monkeypatch):
    target = tmp_path / "out"
    write(target, "old")
    rename = Path.rename

    def fail_to_move_in(self, to):
        if self.name.endswith(".new"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(atomic, "_exchange", no_exchange)
    monkeypatch.setattr(Path, "rename", fail_to_move_in)
    with pytest.raises(OutputError, match="out cannot be written: Input/output error"):
        write(target, "new", force=True)
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_run_that_was_faster_is_not_overwritten(tmp_path):
    with (
        pytest.raises(OutputExistsError, match="already exists"),
        atomic.new_directory(tmp_path / "out", force=False, kind=ANY) as draft,
    ):
        write(tmp_path / "out", "first")
        (draft / "file").write_text("second")
    assert (tmp_path / "out" / "file").read_text() == "first"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_reported_with_the_path(tmp_path, number):
    for new in (
        lambda path: atomic.new_file(path, force=False),
        lambda path: atomic.new_directory(path, force=False, kind=ANY),
    ):
        path = tmp_path / "out"
        with pytest.raises(OutputError, match=f"{path} cannot be written: .*Make room"), new(path):
            # As pyarrow says it: neither the path nor a bare reason.
            raise OSError(number, "Error writing bytes to file. Detail: [errno 28]")
        assert list(tmp_path.iterdir()) == []


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


def reserve(target, size=1000, check=lambda: None):
    return atomic.reserved(target, check=check, size=size)


def writing(target):
    """Try to write from another process."""
    code = "import sys, pathlib; from bagwise.files import atomic\nwith atomic.new_file("
    code += "pathlib.Path(sys.argv[1]), force=True) as draft: draft.write_text('theirs')"
    found = subprocess.run(
        [sys.executable, "-c", code, target], check=False, capture_output=True, text=True
    )
    return found.stderr


def test_what_is_reserved_is_written_by_nobody_else(tmp_path):
    claim = tmp_path / ".out.bagwise-claim"
    claim.write_text("left by a run that was killed")
    with reserve(tmp_path / "out"):
        assert claim.stat().st_size == 0
        assert "another run is about to write" in writing(tmp_path / "out")
        assert writing(tmp_path / "other") == ""
        with (
            pytest.raises(OutputExistsError, match="another run"),
            reserve(tmp_path / "out"),
        ):
            pytest.fail("it is taken")
        write(tmp_path / "out", "ours")
    assert (tmp_path / "out" / "file").read_text() == "ours"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_a_reservation_follows_no_link_and_needs_no_locks(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("kept")
    claim = tmp_path / ".out.bagwise-claim"
    claim.symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match="out cannot be written"), reserve(tmp_path / "out"):
        pytest.fail("it would have emptied the file")
    assert (tmp_path / "precious").read_text() == "kept"
    claim.unlink()
    monkeypatch.setattr(locks, "fcntl", None)
    with reserve(tmp_path / "out"):
        write(tmp_path / "out", "new")
    assert not claim.exists()


@pytest.mark.parametrize("fallocate", [True, False])
def test_a_reservation_asks_for_room(tmp_path, monkeypatch, fallocate):
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with pytest.raises(OutputError, match="out cannot be written"):
        reserve(tmp_path / "out", size=2**60).__enter__()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), reserve(tmp_path / "out", check=lambda: 1 / 0):
        pytest.fail("the check comes first")
