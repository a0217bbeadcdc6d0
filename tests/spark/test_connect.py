"""Sessions of other kinds, each in a process of its own, since it shares none with the others."""

import os
import subprocess
import sys

import numpy as np

import bagwise as bw
from tests.spark.conftest import HERE


def run(module, *arguments):
    root = HERE.parents[1]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{module}", *arguments], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path}, cwd=root, check=True, timeout=1200, text=True,
    )  # fmt: skip
    return done.stdout


def test_a_session_that_is_told_too_late_to_encrypt_is_refused():
    """Its settings say that it does, and its shuffle files have labels in clear."""
    assert run("late_setting").split() == ["true", "True", "True"]


def test_a_frame_of_connect_is_released_and_fitted(table, tmp_path):
    run("on_connect", str(tmp_path))
    release = bw.Release.load(tmp_path / "out")
    assert release.verify().epsilon == 2.0
    assert np.array_equal(np.sort(release.instances["key"].to_numpy()), table["key"].to_numpy())
    model, local = bw.load_model(tmp_path / "model.json"), bw.fit_release(release)
    np.testing.assert_allclose(model.coef, local.coef, rtol=1e-6)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.json", "out"]
