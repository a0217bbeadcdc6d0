"""Answers are added, taken back and corrected; none is ever lost, and a failure changes nothing."""

import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from bagwise.annotate.store import AnswerStore, ConflictError, Round
from bagwise.errors import ProjectError

IDS = ["a", "b", "c", "d"]


@pytest.fixture
def store(tmp_path):
    made = AnswerStore.create(tmp_path / "labels.sqlite")
    made.add_round(Round(1, "random"), IDS)
    return made


def values(store):
    return {answer.id: answer.value for answer in store.answers()}


def test_it_has_a_write_ahead_log_and_waits_for_the_disk(store):
    with sqlite3.connect(store.path) as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with store._connected() as file:
        assert file.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_same_label_twice_is_no_news_and_another_one_is_refused(store):
    assert store.add_answers([("a", 1.0), ("b", 2.0)], source="file") == 2
    assert store.add_answers([("a", 1.0), ("c", 3.0)], source="file") == 1
    with pytest.raises(ConflictError) as caught:
        store.add_answers([("d", 4.0), ("a", 918273.5)], source="file")
    assert caught.value.ids == ("a",)
    assert "918273" not in str(caught.value)
    assert values(store) == {"a": 1.0, "b": 2.0, "c": 3.0}
    store.add_answers([("a", 9.0)], source="file", correct=True)
    assert values(store)["a"] == 9.0


def test_an_answer_for_a_row_that_nobody_asked_for_undoes_its_whole_transaction(store):
    with pytest.raises(ProjectError):
        store.add_answers([("a", 1.0), ("stranger", 2.0)], source="file")
    assert values(store) == {}


def test_taking_back_goes_back_one_answer_at_a_time_and_keeps_every_line(store):
    for key in "abc":
        store.add_answers([(key, 1.0)], source="page")
    store.add_answers([("d", 1.0)], source="file")
    assert [store.take_back(source="page") for _ in range(4)] == ["c", "b", "a", None]
    assert values(store) == {"d": 1.0}
    with sqlite3.connect(store.path) as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (7,)
    assert [task.id for task in store.open_tasks()] == ["a", "b", "c"]


def test_of_two_who_start_the_same_round_one_does(store):
    store.add_round(Round(2, "random"), ["e"])
    with pytest.raises(ProjectError, match="meanwhile"):
        store.add_round(Round(2, "random"), ["f"])
    assert [task.id for task in store.tasks()] == [*IDS, "e"]


def test_many_writers_wait_for_each_other(store):
    failures = []

    def write(value):
        try:
            for key in IDS:
                store.add_answers([(key, value)], source=str(value), correct=True)
        except ProjectError as problem:
            failures.append(problem)

    writers = [threading.Thread(target=write, args=(float(value),)) for value in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert set(values(store)) == set(IDS)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(2000)])
def test_a_file_that_is_something_else_is_refused(tmp_path, content):
    path = tmp_path / "labels.sqlite"
    path.write_bytes(content)
    with pytest.raises(ProjectError):
        AnswerStore(path).check()
    with pytest.raises(ProjectError, match="missing"):
        AnswerStore(tmp_path / "nothing").check()


def test_a_page_that_was_overwritten_is_noticed(store):
    store.add_answers([(key, 1.0) for key in IDS], source="file")
    content = bytearray(store.path.read_bytes())
    content[4096:4196] = bytes(100)
    store.path.write_bytes(content)
    with pytest.raises(ProjectError, match="damaged"):
        store.check()


class AgainstADict(RuleBasedStateMachine):
    """Whatever is done, what is kept is what a dict would hold."""

    place = Path()  # a directory for each run
    runs = 0

    def __init__(self):
        super().__init__()
        type(self).runs += 1
        self.store = AnswerStore.create(self.place / f"{type(self).runs}.sqlite")
        self.store.add_round(Round(1, "random"), IDS)
        self.kept, self.history = {}, []

    @rule(answers=st.dictionaries(st.sampled_from(IDS), st.integers(0, 2)), correct=st.booleans())
    def answer(self, answers, correct):
        clash = any(self.kept.get(key, value) != value for key, value in answers.items())
        given = [(key, float(value)) for key, value in answers.items()]
        if clash and not correct:
            with pytest.raises(ConflictError):
                self.store.add_answers(given, source="page")
            return
        self.store.add_answers(given, source="page", correct=correct)
        for key, value in given:
            if self.kept.get(key) != value:
                self.history = [one for one in self.history if one != key] + [key]
        self.kept.update(given)

    @rule()
    def take_back(self):
        expected = self.history.pop() if self.history else None
        assert self.store.take_back(source="page") == expected
        self.kept.pop(expected, None)

    @rule()
    def reopen(self):
        self.store = AnswerStore(self.store.path)
        self.store.check()

    @invariant()
    def nothing_is_lost(self):
        assert values(self.store) == self.kept
        assert [task.id for task in self.store.open_tasks()] == [
            key for key in IDS if key not in self.kept
        ]


def test_against_a_dict(tmp_path):
    machine = type("Machine", (AgainstADict,), {"place": tmp_path, "runs": 0})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=6, stateful_step_count=10, deadline=None)
    )
