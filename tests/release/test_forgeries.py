"""Forgeries that once verified, each made as a careful forger would, with all hashes recomputed."""

import dataclasses
import hashlib
import json
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.bagging import PublishedBags
from bagwise.bagging.bags import Bags
from bagwise.cli import app
from bagwise.errors import BagwiseError, CertificateError, ModelFileError, ReleaseError
from bagwise.files.json_files import canonical
from bagwise.privacy.circumstances import KeptOrder, SimulatedNoise
from bagwise.privacy.dispersion import (
    ClaimedNoise,
    dispersion_p_value,
    reach_p_value,
)
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.laws import Gaussian, Laplace, Move, Staircase
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_loss import half_width
from bagwise.privacy.queries import MeanLoss
from bagwise.privacy.samplers import discrete_laplace
from bagwise.rng import SecureNoise
from bagwise.scoring.privately import PrivateScores
from bagwise.verifier import verify
from tests.forging import rehash
from tests.release.test_release import edit_json, edit_provenance
from tools.settings import filed

N = 600
PRIVATE = {"label": "y", "bounds": (-9, 9), "epsilon": 1.0, "delta": 1e-4, "bag_size": 10}

EQUAL = bw.SortedBags(cut="equal")  # so that sizes give nothing away


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, N))
    return pa.table({"x": x, "z": z, "y": 2 * x + 0.1 * rng.normal(size=N)})


@pytest.fixture
def saved(table, tmp_path):
    return bw.make_release(table, **filed(strategy="random", **PRIVATE)).save(tmp_path / "out")


@pytest.fixture
def by_model(table, tmp_path):
    return bw.make_release(table, **filed(strategy=EQUAL, **PRIVATE)).save(tmp_path / "scored")


def reject(path, match=None, **options):
    rehash(path)
    with pytest.raises(BagwiseError, match=match):
        bw.Release.load(path).verify(**options)


def labels_in_notes(table):
    return table.replace_schema_metadata({"note": "3.14 2.71"})


def labels_in_field_notes(table):
    field = table.schema.field(0).with_metadata({"note": "3.14 2.71"})
    return table.cast(table.schema.set(0, field))


@pytest.mark.parametrize("name", ["instances.parquet", "bags.parquet"])
@pytest.mark.parametrize("change", [labels_in_notes, labels_in_field_notes])
def test_labels_in_parquet_notes(saved, name, change):
    changed = change(pq.read_table(saved / name))
    pq.write_table(changed, saved / name, compression="zstd")
    reject(saved, "metadata")


def test_an_extra_key_beside_the_scores(by_model):
    edit_json(by_model, "scores.json", checked=[1.0, 2.0])
    reject(by_model, "unknown")


def test_blanks_after_the_manifest(saved):
    path = saved / "manifest.json"
    path.write_bytes(path.read_bytes() + b" \t  \n")
    with pytest.raises(ReleaseError, match="not spelled"):
        bw.Release.load(saved)


def read(path):
    return json.loads(path.read_text())


FREE_TEXT = {
    "software of the manifest": lambda d: edit_json(d, "manifest.json", software="bagwise 3.14 6"),
    "software of the certificate": lambda d: edit_json(d, "certificate.json", software="3.14 2.7"),
    "remarks": lambda d: edit_json(d, "certificate.json", remarks=["3.14 2.71"]),
    "an unknown circumstance": lambda d: edit_json(
        d, "certificate.json", circumstances=[{"kind": "note", "text": "3.14"}]
    ),
    "a reason in words": lambda d: edit_provenance(d, chosen_because="3.14 2.71"),
    "the headline of the manifest": lambda d: edit_json(d, "manifest.json", certificate="3.14"),
    "a parameter that the strategy has not": lambda d: edit_provenance(
        d, strategy_parameters={"note": "3.14"}
    ),
    "what the certificate covers": lambda d: edit_json(d, "certificate.json", covers="0" * 64),
    "hashes of more files": lambda d: edit_json(
        d, "manifest.json", files={**read(d / "manifest.json")["files"], "z": ""}
    ),
}  # fmt: skip


@pytest.mark.parametrize("forge", FREE_TEXT.values(), ids=FREE_TEXT)
def test_there_is_no_room_for_free_text(saved, forge):
    bw.Release.load(saved).verify()
    forge(saved)
    manifest = json.loads((saved / "manifest.json").read_text())
    if "z" not in manifest["files"]:
        rehash(saved)
    with pytest.raises(BagwiseError):
        bw.Release.load(saved).verify()


def test_bags_that_do_not_follow_the_published_model(by_model):
    release = bw.Release.load(by_model)
    assert any("order of the published model" in check for check in release.verify().checks)
    shuffled = release.bags.index[np.random.default_rng(0).permutation(N)]
    other = dataclasses.replace(release, bags=Bags(shuffled).take(np.arange(N)))
    with pytest.raises(ReleaseError, match="overlap in the scores"):
        other.verify()
    moved = release.bags.index.copy()
    scores = release.model.predict(release.encoder.transform(release.features))
    order = np.argsort(scores)
    moved[order[[9, 10]]] = moved[order[[10, 9]]]  # two neighbours of different bags
    with pytest.raises(ReleaseError, match="overlap in the scores"):
        dataclasses.replace(release, bags=Bags(moved).take(np.arange(N))).verify()


def test_sorted_super_bags_overlap_in_pairs_only(table):
    release = bw.make_release(
        table, **filed(strategy=bw.SuperBags(order="sorted"), scores="model", **PRIVATE)
    )
    release.verify()
    scores = release.model.predict(release.encoder.transform(release.features))
    thirds = np.argsort(np.argsort(scores)) // 30 * 3 + np.arange(N) % 3
    three = Bags.from_labels(thirds)
    judge = bw.SuperBags(order="sorted")
    assert judge.contradiction(PublishedBags(release.bags.index, scores=scores)) is None
    assert judge.contradiction(PublishedBags(three.index, scores=scores)) is not None


def test_a_strategy_that_nobody_knows_is_listed_and_fails_when_strict(saved):
    edit_provenance(saved, strategy="unheard-of", strategy_parameters={})
    rehash(saved)
    release = bw.Release.load(saved)
    assert "whether its strategy made these bags" in release.verify().note
    reject(saved, "not part of bagwise", strict=True)


def test_sorted_bags_relabelled_as_random(table):
    by_model = bw.make_release(table, **filed(strategy=EQUAL, **PRIVATE))
    relabelled = dataclasses.replace(
        bw.make_release(table, **filed(strategy="random", **PRIVATE)),
        bags=by_model.bags,
        instances=by_model.instances,
    )
    with pytest.raises(ReleaseError, match="follow the features"):
        relabelled.verify()


def test_honest_random_bags_are_hardly_ever_suspected():
    # 200 honest partitions of awkward features: at one in a billion none of them may fail.
    rng = np.random.default_rng(1)
    X = np.column_stack(
        [
            rng.standard_cauchy(size=500),
            rng.integers(0, 2, size=500),
            rng.random(500) < 0.01,
            rng.lognormal(sigma=3, size=500),
            np.ones(500),
        ]
    )
    for size in (1, 2, 7, 250):
        for _ in range(50):
            bags = bw.make_bags(X, bag_size=size, strategy="random")
            assert bw.RandomBags().contradiction(PublishedBags(bags.index, X=X)) is None


def test_remarks_on_the_kept_order_cannot_be_dropped_or_invented(table, tmp_path):
    kept = bw.make_release(table, **filed(strategy="random", keep_order=True, **PRIVATE))
    kept.verify()
    silent = dataclasses.replace(kept.certificate, circumstances=())
    with pytest.raises(ReleaseError, match="does not mention"):
        dataclasses.replace(kept, certificate=silent).verify()
    shuffled = bw.make_release(table, **filed(strategy="random", **PRIVATE))
    for invented in (KeptOrder(), SimulatedNoise()):
        spoken = dataclasses.replace(shuffled.certificate, circumstances=(invented,))
        with pytest.raises(ReleaseError, match="does not mention"):
            dataclasses.replace(shuffled, certificate=spoken).verify()


@pytest.mark.parametrize("name", ["Y", "y ", "у", "ｙ", "y\u200b", "\u00a0Y"])
def test_a_column_that_reads_like_the_label(saved, table, name):
    with pytest.raises(bw.errors.ColumnError, match="nearly the same name as the label"):
        bw.make_release(table.append_column(name, table["x"]), **filed(**PRIVATE))
    release = bw.Release.load(saved)
    columns = tuple(msgspec.structs.replace(c, name=name) if c.name == "z" else c
                    for c in release.encoder.columns)  # fmt: skip
    forged = dataclasses.replace(
        release,
        encoder=bw.Encoder(columns, "indicator"),
        instances=release.instances.rename_columns(["x", name]),
    )
    with pytest.raises(ReleaseError, match="nearly the same name as the label"):
        forged.verify()


def test_a_unit_added_to_a_certificate_for_rows(saved, table):
    release = bw.Release.load(saved)
    certificate = release.certificate
    promised = dataclasses.replace(certificate, unit="person", unit_rows=5)
    with pytest.raises(CertificateError, match="units of 5 rows"):
        dataclasses.replace(release, certificate=promised).verify()
    # One row each is what the noise does protect, and the words say that it is one.
    alone = dataclasses.replace(certificate, unit="person")
    assert "(one row each)" in alone.text()
    with pytest.raises(CertificateError, match="contradicts itself about units"):
        dataclasses.replace(certificate, unit_rows=2).check()


@pytest.mark.parametrize("label_kind", ["mean", "pick"])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_labels_without_their_noise(table, label_kind, delta):
    if label_kind == "pick" and delta == 0:
        return  # refused
    request = {**PRIVATE, "delta": delta, "label_kind": label_kind, "epsilon": 0.5}
    release = bw.make_release(table, **filed(strategy="random", **request))
    assert any("vary at least as much" in check for check in release.verify().checks)
    step = 18 / LABEL_STEPS
    sizes = release.bags.sizes if label_kind == "mean" else 1
    quiet = -9 + np.rint((0 * release.labels + 9) * sizes / step) * step / sizes
    with pytest.raises(ReleaseError, match="vary less than the noise"):
        dataclasses.replace(release, labels=quiet).verify()


def test_the_dispersion_test_keeps_its_level_and_sees_a_third_of_the_noise():
    # Honest noise on arbitrary values, with guesses that are as good as can be: constant values.
    rng = np.random.default_rng(4)
    m, scale, runs = 300, 50, 400
    claimed = ClaimedNoise(
        np.ones(m),
        Laplace(scale).within,
        Laplace(scale).beyond,
    )
    p_values = []
    for _ in range(runs):
        labels = discrete_laplace(m, scale=scale, source=SecureNoise()).astype(float)
        p_values.append(dispersion_p_value(labels, rng.normal(size=(m, 3)), claimed))
    # At level 0.05 at most 20 of 400 are expected; 45 is more than five standard deviations off.
    assert np.sum(np.array(p_values) < 0.05) <= 45
    third = discrete_laplace(m, scale=scale // 3, source=SecureNoise()).astype(float)
    assert dispersion_p_value(third, rng.normal(size=(m, 3)), claimed) < 1e-9


KINDS: dict[str, dict[str, Any]] = {
    "laplace": {"noise": "laplace"},
    "gaussian": {"noise": "gaussian"},
    "staircase": {"noise": "staircase"},
    "picks": {"label_kind": "pick"},
    "a range": {"bounds": (-900, 900), "tighten": "range", "centre": "none", "epsilon": 4.0},
    "a limit": {"bounds": (-900, 900), "centre": "model", "epsilon": 4.0},
}


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_were_not_clipped_are_seen(table, kind):
    """An honest release is within reach; the twin has a few labels that no noise takes there."""
    rows = pa.concat_tables([table] * 4)
    honest = bw.make_release(rows, **filed(strategy="random", **{**PRIVATE, **KINDS[kind]}))
    assert any("farther off" in check for check in honest.verify().checks)
    event: Any = honest.certificate.events[-1]
    low, high = honest.certificate.range_of(event)
    reach = (high - low) / 2 + 40 * honest.noise_sd.max()
    sizes = honest.bags.sizes if event.hides == "bag means" else 1
    away = np.rint(reach * sizes / event.grid_step) * event.grid_step / sizes
    forged = dataclasses.replace(
        honest, labels=np.where(np.arange(honest.bags.n_bags) < 3, 1, 0) * away * 2 + honest.labels
    )
    with pytest.raises(ReleaseError, match="labels were not clipped"):
        forged.verify()


def test_the_test_of_reach_keeps_its_level():
    """Labels at the end of their range, where noise carries half of them out."""
    m, scale, runs = 50, 30, 2000
    claimed = ClaimedNoise(
        np.ones(m),
        Laplace(scale).within,
        Laplace(scale).beyond,
    )
    noise = discrete_laplace(m * runs, scale=scale, source=SecureNoise()).reshape(runs, m)
    for alpha in (0.01, 0.1):
        bound = alpha + 5 * np.sqrt(alpha * (1 - alpha) / runs)
        failed = [reach_p_value(one.astype(float), claimed) < alpha for one in noise]
        assert np.mean(failed) <= bound
        failed = [reach_p_value(1.5 * one, claimed) < alpha for one in noise]
        assert np.mean(failed) > bound  # the twin


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.9), (-5.0, 0.999), (0.0, 0.5), (1.0, 1.0)])
def test_a_certificate_that_means_nothing_is_within_no_limit(saved, epsilon, delta):
    certificate = bw.Release.load(saved).certificate
    forged = dataclasses.replace(certificate, epsilon=epsilon, delta=delta)
    assert not forged.within(max_epsilon=0.1, n_rows=N) or delta < 1 / N
    if epsilon <= 0 or delta >= 1:
        with pytest.raises(CertificateError, match="impossible epsilon or delta"):
            forged.check()


@pytest.fixture(scope="module")
def model(table):
    return bw.release_model(table, label="y", bounds=(-9, 9), epsilon=1.0, delta=1e-4)


def forge_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    content.pop("sha256", None)
    digest = hashlib.sha256(canonical(content)).hexdigest()
    path.write_bytes(canonical({**content, "sha256": digest}))


MODEL_FORGERIES = {
    "other coefficients": lambda c: c["coef"].__setitem__(0, 3.14),
    "another intercept": lambda c: c.__setitem__("intercept", 3.14),
    "a note": lambda c: c.__setitem__("note", "3.14 2.71"),
    "more rows": lambda c: c["trained_on"].__setitem__("n_rows", 10**6),
    "an extra key": lambda c: c.__setitem__("labels", [3.14]),
    "an extra key inside": lambda c: c["trained_on"].__setitem__("labels", [3.14]),
    "another label": lambda c: c.__setitem__("label", "3.14"),
    "software": lambda c: c.__setitem__("software", "labels 3.14"),
    "nested coefficients": lambda c: c.__setitem__("coef", [[1.0], [2.0]]),
    "text for coefficients": lambda c: c.__setitem__("coef", ["1", "2"]),
}


@pytest.mark.parametrize("change", MODEL_FORGERIES.values(), ids=MODEL_FORGERIES)
def test_a_certificate_belongs_to_its_coefficients(model, tmp_path, change):
    path = model.save(tmp_path / "model.json")
    found, certificate = verify(path)
    assert certificate.headline == found.headline == "(1, 0)-label-DP"
    forge_json(path, change)
    with pytest.raises(ModelFileError):
        verify(path)


def test_a_certificate_of_another_model(model, table, tmp_path):
    other = bw.release_model(table, label="y", bounds=(-9, 9), epsilon=1.0, delta=1e-4)
    path = model.save(tmp_path / "model.json")
    theirs = json.loads(other.save(tmp_path / "other.json").read_text())["certificate"]
    forge_json(path, lambda content: content.__setitem__("certificate", theirs))
    with pytest.raises(ModelFileError, match="another model"):
        verify(path)


def test_a_fitted_model_promises_nothing_itself(saved, tmp_path):
    path = bw.fit_release(bw.Release.load(saved)).save(tmp_path / "model.json")
    found, certificate = verify(path)
    assert certificate is None
    assert "verify that one" in found.note


def test_evaluations_follow_from_their_certificates(model, table, tmp_path):
    scores = bw.evaluate_rows_privately(model, table, bounds=(-9, 9), epsilon=0.5)
    path = scores.save(tmp_path / "scores.json")
    assert PrivateScores.load(path) == scores
    found, certificate = verify(path)
    assert found.headline == certificate.headline == "(0.5, 0)-label-DP"
    original = path.read_bytes()
    for change in (
        {"mean_loss": 0.001},
        {"noise_sd": 0.001},
        {"interval": [0.0, 1.0]},
        {"n_rows": 10**6},
        {"largest_loss": 1.0},
        {"note": "3.14"},
        {"rmse": 3.14},
        {"loss": "absolute"},
    ):
        path.write_bytes(canonical({**json.loads(original), **change}))
        with pytest.raises(CertificateError):
            verify(path)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_evaluations_do_not_contradict_their_unit(model, table, tmp_path, loss):
    people = table.append_column("who", pa.array(np.arange(N) // 3))
    asked = {"bounds": (-9, 9), "epsilon": 0.5, "loss": loss}
    scores = bw.evaluate_rows_privately(model, people, unit="who", **asked)
    path = tmp_path / "scores.json"

    def forged(rows, factor=1.0):
        """The same noise, or of another sensitivity at the same cost, as for units of `rows`."""
        event: Any = scores.certificate.events[0]
        promise = scores.certificate
        steps = int(event.query.reach * factor)
        noise = Laplace.least(Move(steps), Fraction(1, 2))
        other = Mechanism(MeanLoss(event.grid_step, steps), (noise,))
        margin = half_width(other, n_rows=N, level=0.95)
        made = dataclasses.replace(
            scores,
            noise_sd=other.number_sd / N,
            interval=(scores.mean_loss - margin, scores.mean_loss + margin),
            certificate=dataclasses.replace(promise, unit_rows=rows, events=(other,)),
        )
        promise = dataclasses.replace(made.certificate, covers=made.digest)
        return dataclasses.replace(made, certificate=promise).save(path, force=True)

    found, _ = verify(forged(3))
    assert "how many rows a unit has" in found.unchecked
    assert any("which model and which rows" in line for line in found.unchecked)
    # Three rows lose three times the least, a quarter or half of the largest loss, or more.
    event: Any = scores.certificate.events[0]
    least = 3 * scores.largest_loss / (4 if loss == "squared" else 2)
    verify(forged(3, 1.001 * least / event.sensitivity))
    short = 0.999 * least / event.sensitivity
    for rows, factor in ((3, short), (1_000_000, 1.0), (N + 1, 400.0), (13, 1.0), (1, 1.0)):
        wrong = forged(rows, factor)
        with pytest.raises(CertificateError, match=r"units of|of 600 rows"):
            verify(wrong)


@pytest.mark.parametrize("name", ["manifest.json", "certificate.json", "scores.json"])
def test_the_order_of_keys_tells_nothing(by_model, name):
    path = by_model / name
    path.write_bytes(canonical(dict(reversed(read(path).items()))))
    reject(by_model)


def test_a_whole_number_is_not_a_decimal_one(by_model):
    edit_json(by_model, "scores.json", intercept=3)
    reject(by_model, "not written the way")


FIGURES = {
    "kind": "least-regret", "rmse": 0.1, "loss": "bag", "signal_sd": 1.0, "label_noise_sd": 1.0,
    "factor": 3.0, "misfit": 0.05,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "figure"),
    [("rmse", -5.0), ("signal_sd", -1.0), ("label_noise_sd", -1.0), ("factor", -3.0),
     ("factor", 0.5), ("misfit", -0.1)],
)  # fmt: skip
def test_a_plan_with_impossible_figures(saved, name, figure):
    edit_provenance(saved, chosen_because=FIGURES)
    rehash(saved)
    bw.Release.load(saved).verify()
    edit_provenance(saved, chosen_because={**FIGURES, name: figure})
    reject(saved, f"chosen_because.{name}")


def test_what_rests_on_units_and_models_is_listed(table):
    """Staircase noise for all rows of a person supposes that they share a bag: nobody can see."""
    people = table.append_column("who", pa.array(np.arange(N) // 2))
    plain = {**PRIVATE, "strategy": "random", "delta": 0.0}

    def unseen(**options):
        return bw.make_release(people, **filed(**{**plain, **options})).verify().unchecked

    in_one_bag = "whether all rows of a unit are in one bag, as its noise supposes"
    rows, model = "how many rows a unit has", "whether the private model that is published"
    by = {"by": "who", "strategy": "groups", "bag_size": 2, "unit": "who", "noise": "staircase"}
    shared = people.append_column("pair", people["who"])
    made = bw.make_release(shared, **filed(**{**plain, **by, "by": "pair"}))
    assert in_one_bag in made.verify().unchecked
    apart = unseen(unit="who", noise="staircase")
    assert in_one_bag not in apart
    assert any(line.startswith(rows) for line in apart)
    alone = unseen(exclude="who")
    assert not any(line.startswith((rows, model)) for line in alone)
    for options in ({"strategy": EQUAL}, {"centre": "model"}):
        assert any(line.startswith(model) for line in unseen(exclude="who", **options))


def test_limits_are_not_asked_of_a_model_without_a_certificate(saved, tmp_path):
    path = bw.fit_release(bw.Release.load(saved)).save(tmp_path / "model.json")
    run = CliRunner().invoke(app, ["verify", str(path), "--max-epsilon", "2"])
    assert run.exit_code == 2
    assert "no certificate of its own" in run.output.replace("\n", " ")


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.5},
        {"epsilon": 2.0},
        {"delta": 1e-3},
        {"asked_epsilon": 0.5},
        {"asked_epsilon": 2.0},
        {"asked_delta": 0.0},
        {"asked_delta": 1e-3},
        {"asked_epsilon": None},
        {"asked_delta": None},
        {"epsilon": 0.5, "asked_epsilon": 0.5},
    ],
    ids=str,
)
def test_another_promise_than_the_one_delivered_and_asked_for(saved, change):
    certificate = json.loads((saved / "certificate.json").read_text())
    assert (certificate["epsilon"], certificate["delta"]) == (1.0, 0.0)
    assert (certificate["asked_epsilon"], certificate["asked_delta"]) == (1.0, 1e-4)
    edit_json(saved, "certificate.json", **change)
    reject(saved)


def test_a_promise_asked_for_that_is_stronger_than_the_one_kept_in_all_its_words(table):
    """The forger makes the words again, too, so that nothing but the numbers can tell."""
    made = bw.make_release(table, **filed(strategy="random", **PRIVATE))
    made.verify()
    for change in (
        {"asked_epsilon": 0.5},
        {"asked_delta": -1e-9},
        {"epsilon": 0.5, "asked_epsilon": 0.5},
        {"delta": 1e-3, "asked_delta": 1e-4},
    ):
        forged = dataclasses.replace(made.certificate, **change)
        with pytest.raises(CertificateError):
            dataclasses.replace(made, certificate=forged).verify()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [1, 3, 200])
def test_the_chance_of_small_noise_is_never_understated(kind, scale):
    law = {"laplace": Laplace, "gaussian": Gaussian}[kind](scale)
    noise = np.abs(law.draw(200_000, SecureNoise()))
    for r in {0, 1, 2, scale, 3 * scale}:
        seen = np.mean(noise <= r)
        stated = float(law.within(np.array([float(r)]))[0])
        # Six standard deviations of the observed share.
        assert seen <= stated + 6 * np.sqrt(0.25 / noise.size)
        slack = 0 if kind == "laplace" else 0.41 / scale  # the largest weight, twice over
        assert seen >= stated - slack - 6 * np.sqrt(0.25 / noise.size)


@pytest.mark.parametrize("scale", [1, 7, 300])
def test_far_noise_is_as_rare_as_is_said(scale):
    """By sums of the weights; the bound for Gaussian noise is one, and within a factor."""
    y = np.arange(-60 * scale, 60 * scale + 1)
    laplace, gaussian = np.exp(-np.abs(y) / scale), np.exp(-((y / scale) ** 2) / 2)
    for r in {1, 2, scale, 4 * scale, 6 * scale}:
        (exact,), far = Laplace(scale).beyond(np.array([r])), y >= r
        assert exact == pytest.approx(laplace[far].sum() / laplace.sum(), rel=1e-9)
        (bound,) = Gaussian(scale).beyond(np.array([r]))
        true = gaussian[far].sum() / gaussian.sum()
        assert true <= bound <= 20 * true
        stairs = Staircase(4 * scale + 1, scale, scale + 1)
        (mine,), (within,) = stairs.beyond(np.array([float(r)])), stairs.within(np.array([r - 1.0]))
        assert 2 * mine == pytest.approx(1 - within, abs=1e-12)
