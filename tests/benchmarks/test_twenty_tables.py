"""The ways of the benchmark learn what can be learnt, and its page shows who is best."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import _many_tables as lot
from benchmarks import twenty_tables as twenty
from benchmarks._real_scores import kept, score


def made_up(family, n=4000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    eta = X @ [0.8, -0.5, 0.0]
    labels = {
        "gaussian": lambda: 5 + eta + 0.3 * rng.normal(size=n),
        "bernoulli": lambda: (rng.random(n) < 1 / (1 + np.exp(-2 * eta))).astype(float),
        "multinomial": lambda: np.array(list("abc"))[
            np.digitize(eta + 0.7 * rng.normal(size=n), [-0.5, 0.5])
        ],
    }[family]()
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(y=labels)
    return lot.cut("made up", frame, "y", family)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "multinomial"])
def test_a_peer_that_descends_learns_where_noise_is_small(family):
    table = made_up(family)
    floor, ceiling = twenty.scale_of(table)
    for epsilon, least, most in ((50.0, 0.8, 1.1), (0.001, -np.inf, 0.3)):
        predicted = twenty.by_conditioned_descent(table, epsilon)
        loss = score(table.family, table.held_out, predicted)["loss"]
        assert least < kept(loss, floor=floor, ceiling=ceiling) < most


def test_the_best_of_a_line_is_bold_and_what_is_not_known_is_a_dash():
    shares = {"bags": 99.0, "model": 99.4, "single labels": 50.0, "Cond-DP": None}
    facts = {"kind": "counts", "rows": 4000, "columns": 3, "rarest": 1.0, "explained": 0.25}
    rows = [
        {"table": "t", "epsilon": 1.0, "way": way, "kept": shares.get(way), **facts}
        for way in twenty.WAYS
    ]
    lines = twenty.page(rows).splitlines()
    assert lines[4] == "| `t` | counts | 4,000 | 3 | – | 25% |"
    assert lines[10] == "| `t` | counts | **99** | **99** | 50 | – | – | – |"
