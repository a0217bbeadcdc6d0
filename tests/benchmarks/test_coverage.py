from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from benchmarks import coverage
from tests.stats import ALPHA

RELEASES = 60


@pytest.mark.parametrize("drawn", [False, True])
def test_shares_of_intervals_that_hold_are_counted(monkeypatch, drawn):
    name = "gaussian, moderate Laplace noise"
    monkeypatch.setitem(coverage.SETTINGS, name, replace(coverage.SETTINGS[name], rows=800))
    kinds = {"95 %": {"level": 0.95}, "half": {"level": 0.5}}
    monkeypatch.setattr(coverage, "INTERVALS", kinds)
    most, half = coverage.measure(name, drawn=drawn, releases=RELEASES)

    assert most["lowest"] == min(most["covered"])
    assert most["mean"] == pytest.approx(np.mean(most["covered"]))
    # The slopes of a release are correlated, so only one of them is counted.
    for found, level in ((most, 0.95), (half, 0.5)):
        held = round(found["covered"][0] * RELEASES)
        assert scipy_stats.binomtest(held, RELEASES, level).pvalue > ALPHA
        assert scipy_stats.binomtest(held, RELEASES, level - 0.4).pvalue < ALPHA


def test_noise_is_of_the_kind_and_the_size_that_a_setting_names():
    setting = coverage.SETTINGS["gaussian, staircase noise"]
    event = setting.event()
    assert event.law.kind == "staircase"
    assert event.number_sd < replace(setting, noise="laplace").event().number_sd
    assert replace(setting, noise=None).event() is None
