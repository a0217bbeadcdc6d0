"""Spark Connect: the same release, in a process of its own, since it shares none with the other."""

import os
import subprocess
import sys

import numpy as np

import bagwise as bw
from tests.spark.conftest import HERE


def test_a_frame_of_connect_is_released_and_fitted(table, tmp_path):
    root = HERE.parents[1]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "tests.spark.on_connect", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path}, cwd=root, check=True, timeout=300,
    )  # fmt: skip
    release = bw.Release.load(tmp_path / "out")
    assert release.verify().epsilon == 2.0
    assert np.array_equal(np.sort(release.instances["key"].to_numpy()), table["key"].to_numpy())
    model, local = bw.load_model(tmp_path / "model.json"), bw.fit_release(release)
    np.testing.assert_allclose(model.coef, local.coef, rtol=1e-6)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.json", "out"]
