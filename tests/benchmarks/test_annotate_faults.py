"""A few of the trials that `benchmarks.annotate_faults` runs by the dozen."""

import numpy as np

from benchmarks import annotate_faults as faults


def test_killed_imports_leave_all_or_nothing(tmp_path):
    rng = np.random.default_rng(0)
    ended = [faults.import_trial(tmp_path / str(trial), rng, 0.3) for trial in range(1)]
    assert set(ended) <= {"none", "all"}


def test_a_killed_server_has_kept_what_it_confirmed(tmp_path):
    ended = faults.serve_trial(tmp_path, np.random.default_rng(1), 0.3)
    assert ended in ("as confirmed", "one more than confirmed")


def test_an_import_that_was_cut_in_two_is_found_out(tmp_path):
    project, path = faults.make_project(tmp_path)
    for place, task in enumerate(project.store.tasks()[:10]):
        project.answer(task.id, place + 0.5)
    assert faults.after_import(project.directory, path).startswith("WRONG: 10 of")


def test_a_label_that_was_confirmed_and_is_not_there_is_found_out(tmp_path):
    project, _ = faults.make_project(tmp_path)
    ids = [task.id for task in project.store.tasks()[:4]]
    for key in ids[:3]:
        project.answer(key, 1.0)
    assert faults.after_serving(project.directory, ids[:3]) == "as confirmed"
    assert faults.after_serving(project.directory, ids[:2]) == "one more than confirmed"
    assert faults.after_serving(project.directory, ids[:1]).startswith("WRONG")
    assert faults.after_serving(project.directory, ids).startswith("WRONG")
