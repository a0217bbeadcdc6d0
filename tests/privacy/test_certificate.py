import contextlib
import dataclasses
import json
import math
import tracemalloc

import pytest
from msgspec.structs import replace as changed

from bagwise.errors import BudgetError, CertificateError
from bagwise.privacy import Certificate, total_epsilon
from bagwise.privacy import certificate as certificates
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.curves import PickCurve
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.laws import Gaussian, Laplace
from bagwise.privacy.mechanisms import Mechanism, mechanism_from_json, noisy_choice
from tests.privacy.events import (
    bag_means,
    bag_picks,
    class_picks,
    every_label,
    laplace,
    mean_loss,
    moving,
    with_noise,
)

BOUNDS = (0.0, 10.0)


@pytest.fixture
def private():
    return Certificate(
        epsilon=1.0,
        delta=1e-5,
        bounds=BOUNDS,
        events=(bag_means(ExactCalibration(1.0, 1e-5, BOUNDS, noise="gaussian")),),
        smallest_bag=5,
        noise_source="operating system (os.urandom)",
    )


@pytest.fixture
def of_a_loss():
    """The certificate of a mean squared loss, of which a row counts 64 at most."""
    event = mean_loss(ExactCalibration(0.5, 0.0, BOUNDS), reach=LOSS_STEPS, step=64 / LOSS_STEPS)
    return Certificate(
        epsilon=0.5,
        delta=0.0,
        bounds=BOUNDS,
        events=(event,),
        smallest_bag=None,
        noise_source="operating system (os.urandom)",
    )


@pytest.fixture
def open_one():
    return Certificate(None, None, None, (), smallest_bag=5, noise_source="none")


def test_words_come_first_and_say_it(private, open_one):
    private.check()
    open_one.check()
    assert private.headline == "(1, 1e-05)-label-DP"
    assert "exp(1) = 2.718" in private.text()
    assert "Not protected: features" in private.text()
    assert open_one.headline == "NOT PRIVATE"
    assert open_one.text().startswith("NOT PRIVATE")
    assert not open_one.is_private


def test_it_survives_json(private, open_one, of_a_loss):
    for certificate in (private, open_one, of_a_loss):
        assert Certificate.from_json(json.loads(json.dumps(certificate.to_json()))) == certificate


def test_claiming_more_than_the_events_give_is_caught(private):
    event = private.events[0]
    for wrong in (
        dataclasses.replace(private, epsilon=0.99),
        dataclasses.replace(private, delta=9.9e-6),
        dataclasses.replace(
            private,
            events=(Mechanism(event.query, (Gaussian(event.law.scale - 1),)),),
        ),
        dataclasses.replace(private, events=(event, event)),
    ):
        with pytest.raises(CertificateError, match="its events give"):
            wrong.check()


def test_what_was_asked_for_is_kept_beside_what_is_delivered(private):
    rule = ExactCalibration(1.0, 1e-5, BOUNDS)
    pure = dataclasses.replace(
        private, events=(bag_means(rule),), delta=0.0, asked_epsilon=1.0, asked_delta=1e-5
    )
    pure.check()
    assert pure.headline == "(1, 0)-label-DP"
    assert pure.asked == (1.0, 1e-5)
    assert "Asked for was epsilon 1 with delta 1e-05" in pure.text()
    assert private.asked == (1.0, 1e-5)
    assert "Asked for" not in private.text()
    assert Certificate.from_json(json.loads(json.dumps(pure.to_json()))) == pure
    for wrong in (
        {"asked_epsilon": 0.5},  # less than is spent
        {"delta": 1e-4},  # more than was asked for
        {"asked_epsilon": 1e9},
        {"asked_epsilon": float("nan")},
        {"asked_delta": float("nan")},
        {"asked_delta": 1.0},
        {"asked_delta": -1e-9},
        {"epsilon": None, "delta": None},
    ):
        with pytest.raises(CertificateError):
            dataclasses.replace(pure, **wrong).check()
    for name, value in (
        ("epsilon", 1.1),
        ("epsilon", 0.9),
        ("delta", 1e-4),
        ("asked_epsilon", 2.0),
        ("asked_epsilon", 0.5),
        ("asked_delta", 1e-3),
        ("asked_delta", None),
    ):
        with pytest.raises(CertificateError):  # its words say what was asked for, too
            Certificate.from_json({**pure.to_json(), name: value})


def test_events_must_fit_the_bounds_and_each_other(private, open_one):
    event = private.events[0]
    for wrong, message in (
        (dataclasses.replace(private, bounds=(0.0, 20.0)), "does not fit the bounds"),
        (dataclasses.replace(private, noise_source="none"), "without secret noise"),
        (dataclasses.replace(open_one, noise_source="a dice"), "a source nobody knows"),
        (
            dataclasses.replace(
                private,
                events=(Mechanism(changed(event.query, square=0), event.laws),),
            ),
            "impossible parameters",
        ),
        (
            dataclasses.replace(private, events=(event.on_grid(1e9),)),
            "does not fit the bounds",
        ),
        (dataclasses.replace(private, bounds=None), "an event and no bounds"),
        (dataclasses.replace(private, events=()), "without an event"),
        (dataclasses.replace(private, delta=None), "contradicts itself"),
        (dataclasses.replace(open_one, events=(event,)), "an event and no bounds"),
        (
            dataclasses.replace(private, events=(Mechanism(event.query, (Gaussian(-1),)),)),
            "impossible parameters",
        ),
        (
            dataclasses.replace(private, events=(Mechanism(event.query, (Gaussian(2**60),)),)),
            "impossible parameters",
        ),
    ):
        with pytest.raises(CertificateError, match=message):
            wrong.check()


def test_the_event_of_a_mean_loss_must_fit_the_bounds(of_a_loss):
    of_a_loss.check()
    event = of_a_loss.events[0]
    # As far as a loss can be with bounds 10 apart: 100, and a quarter of it at least.
    square = laplace(LOSS_STEPS, 2 * LOSS_STEPS, 100 / LOSS_STEPS)
    dataclasses.replace(of_a_loss, events=(square,)).check()
    dataclasses.replace(of_a_loss, events=(moving(square, LOSS_STEPS // 4),)).check()
    for wrong, message in (
        (Mechanism(event.query, (Laplace(event.law.scale - 1),)), "its events give"),
        (with_noise(event, 0.5), "its events give"),
        (moving(event, LOSS_STEPS // 4 - 1), "impossible parameters"),
        (laplace(LOSS_STEPS, 2 * LOSS_STEPS, 101 / LOSS_STEPS), "does not fit the bounds"),
        (Mechanism(event.query, (Laplace(0),)), "impossible parameters"),
    ):
        with pytest.raises(CertificateError, match=message):
            dataclasses.replace(of_a_loss, events=(wrong,)).check()
    # A sensitivity of 64 is enough for units of four rows that lose the least, and for no larger.
    dataclasses.replace(of_a_loss, unit="who", unit_rows=4).check()
    with pytest.raises(CertificateError, match="does not allow for units of 5 rows"):
        dataclasses.replace(of_a_loss, unit="who", unit_rows=5).check()
    with pytest.raises(CertificateError, match="no bounds"):
        dataclasses.replace(of_a_loss, bounds=None).check()


def test_nothing_without_bags_speaks_of_bags(of_a_loss, open_one):
    simulated = dataclasses.replace(
        of_a_loss, epsilon=None, delta=None, noise_source="simulated from a seed"
    )
    assert "NOT PRIVATE" in simulated.text()
    assert " bag" not in simulated.text() + of_a_loss.text()
    assert " bag" in open_one.text()


def test_edited_words_are_caught(private):
    entry = private.to_json()
    for key, value in (
        ("headline", "(0.1, 1e-09)-label-DP"),
        ("statement", ["Perfectly safe."]),
        ("private", False),
        ("extra", 1),
    ):
        with pytest.raises(CertificateError, match="do not match"):
            Certificate.from_json({**entry, key: value})


def test_unknown_versions_and_damage_are_caught(private):
    entry = private.to_json()
    with pytest.raises(CertificateError, match="this version reads"):
        Certificate.from_json({**entry, "schema": "bagwise-certificate/9"})
    known = entry["events"][0]
    for kind in ("magic", "laplace-mean", "gaussian"):
        with pytest.raises(CertificateError, match=r"another version.*\$\.query"):
            other = {**known, "query": {**known["query"], "kind": kind}}
            Certificate.from_json({**entry, "events": [other]})
        with pytest.raises(CertificateError, match=r"another version.*\$\.laws"):
            Certificate.from_json({**entry, "events": [{**known, "laws": [{"kind": kind}]}]})
    with pytest.raises(CertificateError, match="damaged"):
        Certificate.from_json({key: value for key, value in entry.items() if key != "delta"})
    with pytest.raises(CertificateError, match=r"another type \(\$\.query\.rows\)"):
        mechanism_from_json({**known, "query": {**known["query"], "rows": "1"}})
    picks = {"kind": "bag-picks", "sizes": ["1"], "rows": 1, "grid_step": 1.0}
    with pytest.raises(CertificateError, match=r"another type \(\$\.query\.sizes"):
        mechanism_from_json({"query": picks, "laws": known["laws"]})
    with pytest.raises(CertificateError, match="missing, unknown or of another type"):
        mechanism_from_json({**known, "query": {"kind": "bag-means", "rows": 1}})


@pytest.mark.parametrize(
    ("max_epsilon", "max_delta", "fits"),
    [
        (None, None, True),
        (1.0, None, True),
        (0.9, None, False),
        (None, 1e-5, True),
        (None, 1e-6, False),
        (1.0, 1e-5, True),
        (1.0, 1e-6, False),
        (1.3, 1e-6, True),  # the same noise at another point of its curve
    ],
)
def test_limits(private, open_one, max_epsilon, max_delta, fits):
    assert private.within(max_epsilon=max_epsilon, max_delta=max_delta) is fits
    unlimited = max_epsilon is None and max_delta is None
    assert open_one.within(max_epsilon=max_epsilon, max_delta=max_delta) is unlimited


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0, -math.inf, True, "1", [1.0]])
@pytest.mark.parametrize("name", ["max_epsilon", "max_delta"])
@pytest.mark.parametrize("other", [None, 0.0])
def test_limits_that_nothing_can_be_held_to(private, open_one, name, limit, other):
    limits = {"max_epsilon": other, "max_delta": other, name: limit}
    for certificate in (private, open_one):
        with pytest.raises(BudgetError, match=f"{name} .* a finite number of at least 0"):
            certificate.within(**limits)


def test_it_follows_its_published_schema(private, open_one, of_a_loss):
    import jsonschema

    schema = Certificate.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    scores = every_label(rule, share=0.2)
    picks = dataclasses.replace(
        private,
        delta=1e-6,
        events=(scores, bag_picks(rule, sizes=[5], spent=[scores])),
    )
    picks.check()
    for certificate in (private, open_one, of_a_loss, picks):
        jsonschema.validate(json.loads(json.dumps(certificate.to_json())), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**private.to_json(), "epsilon": -1}, schema)


def test_the_curve_and_the_groups_follow_from_the_events(private, open_one):
    curve = dict(private.curve())
    assert len(curve) >= 12
    assert curve[1.0] == pytest.approx(1e-5, rel=1e-3)
    assert list(curve.values()) == sorted(curve.values(), reverse=True)
    groups = private.group()
    assert set(groups) == {2, 5, 10}
    assert groups[2] < groups[5] < groups[10]
    assert open_one.curve() == []
    assert open_one.group() == {}


def test_an_edited_curve_is_caught(private):
    entry = private.to_json()
    entry["curve"][3][1] /= 2
    with pytest.raises(CertificateError, match="do not match"):
        Certificate.from_json(entry)


def test_events_are_exported_for_google_s_accountant(private, of_a_loss):
    from dp_accounting import ComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant().compose(ComposedDpEvent(private.dp_events()))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    rule = ExactCalibration(1.0, 1e-5, BOUNDS, noise="gaussian")
    picks = dataclasses.replace(private, events=(bag_picks(rule, sizes=[20]),))
    exported = picks.dp_events()[0]
    assert exported.sampling_probs == pytest.approx([0.95, 0.05])
    laplace = bag_means(ExactCalibration(0.5, 0.0, BOUNDS))
    pure = dataclasses.replace(private, epsilon=0.5, delta=0.0, events=(laplace,))
    assert pure.dp_events()[0].noise_multiplier == pytest.approx(2.0, rel=1e-4)
    assert pure.headline == "(0.5, 0)-label-DP"
    pure.check()
    exported = of_a_loss.dp_events()
    assert exported[0].noise_multiplier == pytest.approx(2.0, rel=1e-6)
    accountant = PLDAccountant().compose(ComposedDpEvent(exported))
    assert accountant.get_epsilon(1e-3) == pytest.approx(
        total_epsilon(of_a_loss.events, 1e-3), rel=1e-3
    )


EXTREMES = (0, -5, -1, 2**48 + 1, 2**62, 10**30, 1e308, 1e-308, 5e-324, 0.5, True, None, "1", [])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("extreme", EXTREMES, ids=repr)
def test_absurd_numbers_are_refused_and_never_computed_with(private, extreme):
    picks = bag_picks(ExactCalibration(1.0, 1e-5, (0, 10)), sizes=[5, 6])
    kept = class_picks(ExactCalibration(1.0, 0.0, (0, 1)), sizes=[5, 6], classes=3)
    means = bag_means(ExactCalibration(1.0, 1e-5, (0, 10)))
    for event, bounds in ((picks, (0.0, 10.0)), (kept, (0.0, 1.0)), (means, (0.0, 10.0))):
        made = dataclasses.replace(private, events=(event,), bounds=bounds).to_json()
        for place in places(made):
            forged = json.loads(json.dumps(made))
            holder = forged
            for key in place[:-1]:
                holder = holder[key]
            if holder[place[-1]] == extreme:
                continue
            holder[place[-1]] = extreme
            with contextlib.suppress(CertificateError):
                Certificate.from_json(forged)


def places(node, path=()):
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def picks_certificate(kind, count):
    """Of a release with so many sizes of bags, after private bounds: both are composed."""
    sizes = range(10, 10 + count)
    event = bag_picks(ExactCalibration(0.9, 1e-6, BOUNDS, noise=kind), sizes=sizes)
    return Certificate(
        epsilon=2.0,
        delta=1e-4,
        bounds=BOUNDS,
        events=(noisy_choice("bounds", 0.1), event),
        smallest_bag=10,
        noise_source="operating system (os.urandom)",
    )


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_many_sizes_of_bags_cost_little_more_than_one(kind, monkeypatch):
    """They once took a matrix of all sizes at 100,000 epsilons: 4 GB for a file of 200 kB."""
    count = 2000
    computed, call = [], PickCurve.__call__

    def counted(curve, epsilon):
        found = call(curve, epsilon)
        computed.append(found.size)
        return found

    monkeypatch.setattr(PickCurve, "__call__", counted)
    certificate = picks_certificate(kind, count)
    tracemalloc.start()
    try:
        certificate.check()
        certificate.curve()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * 2**20
    points = 2**16  # of the coarsest grid of a composition, or about
    assert sum(computed) < count * points / 5
    assert max(computed) < points


def test_sizes_that_no_bag_has_are_refused_before_anything_is_computed(monkeypatch):
    entry = picks_certificate("laplace", 20).to_json()
    Certificate.from_json(entry, sizes=range(1, 40))

    def fails(*_):
        raise AssertionError("nothing is to be computed with such a list")

    monkeypatch.setattr(certificates, "total_delta", fails)
    for sizes in ((), range(10, 29), [10]):
        with pytest.raises(CertificateError, match="sizes that there are none of"):
            Certificate.from_json(entry, sizes=sizes)


def test_long_lists_are_refused_before_they_are_accounted_for(private):
    made = private.to_json()
    with pytest.raises(CertificateError, match="at most 10 events"):
        Certificate.from_json({**made, "events": made["events"] * 11})
    law = {"kind": "gaussian", "scale": 5}
    for sizes, message in (
        (list(range(1, 200_001)), r"another type \(\$\.(laws|query)"),
        ([5, 5], "impossible parameters"),
    ):
        query = {"kind": "bag-picks", "sizes": sizes, "rows": 1, "grid_step": 1.0}
        with pytest.raises(CertificateError, match=message):
            event = {"query": query, "laws": [law] * len(sizes)}
            Certificate.from_json({**made, "events": [event]})
