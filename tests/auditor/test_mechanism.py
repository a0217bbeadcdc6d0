"""What an audit says of mechanisms: `tests/contracts` and `test_audit` attack all of them."""

from typing import Any

from bagwise.auditor.mechanism import audit_events
from bagwise.privacy.laws import Laplace
from bagwise.privacy.mechanisms import noisy_choice
from tests.privacy.events import mechanism_for

DELTA, DRAWS = 1e-5, 40_000


def find(event, claimed=None, draws=DRAWS):
    (found,) = audit_events([event], delta=DELTA, draws=draws, alpha=1e-6)
    return found


def test_noise_that_is_not_drawn_as_claimed_is_refuted(monkeypatch):
    event: Any = mechanism_for("laplace-bag-means", epsilon=1.0)
    draw = Laplace.draw
    monkeypatch.setattr(Laplace, "draw", lambda self, n, source: draw(self, n, source) // 2)
    assert find(event).verdict == "refuted"


def test_a_choice_of_bounds_is_not_tested_and_says_so():
    found = find(noisy_choice("bounds", 0.5))
    assert (found.verdict, found.shown, found.draws) == ("not tested", None, 0)


def test_the_confidence_is_shared_by_all():
    events = [mechanism_for("laplace-labels", epsilon=1.0)] * 3
    found = audit_events(events, delta=0.0, draws=2000, alpha=0.05)
    alone = audit_events(events[:1], delta=0.0, draws=2000, alpha=0.05 / 3)
    assert len(found) == 3
    assert alone[0].claimed == found[0].claimed
