"""The questions that an evaluation of differential privacy asks, and what a release answers.

They follow the parts of NIST SP 800-226: strength, unit, algorithm, utility and bias, trust,
implementation and custody. What a release's files tell is answered here; the rest only the
custodian can know, and is said to be open until it is answered.

References
----------
Near, Darais, Lefkovitz and Howarth (2025), Guidelines for evaluating differential privacy
guarantees, NIST Special Publication 800-226.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bagwise.errors import ReleaseError, check_name
from bagwise.files.json_files import LARGEST_STATEMENT
from bagwise.files.regular_files import open_regular
from bagwise.privacy import Certificate
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import chance_of_guessing
from bagwise.release.release import Release
from bagwise.report.groups import GroupErrors

ASK = "The custodian must answer."

_NOTHING = "NOT PRIVATE: nothing is promised."


@dataclass(frozen=True)
class Answer:
    """One question and what is known.

    Attributes
    ----------
    id, topic, question : str
    answer : str or None
        What the release's own files say.
    custodian : str or None
        What the custodian says.
    is_open : bool
        Whether the custodian must still answer.
    """

    id: str
    topic: str
    question: str
    answer: str | None
    custodian: str | None
    is_open: bool


@dataclass(frozen=True)
class Report:
    """All questions about one release, in order."""

    headline: str
    digest: str | None
    answers: tuple[Answer, ...]
    groups: GroupErrors | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, for machines and for pages."""
        return {
            "headline": self.headline,
            "digest": self.digest,
            "open": [answer.id for answer in self.answers if answer.is_open],
            "answers": [asdict(answer) for answer in self.answers],
            "groups": None if self.groups is None else self.groups.to_json(),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield self.headline
        for one in self.answers:
            yield ""
            yield f"{one.topic} ({one.id}): {one.question}"
            if one.answer:
                yield f"  {one.answer}"
            if one.custodian:
                yield f"  The custodian says: {one.custodian}"
            if one.is_open:
                yield f"  {ASK}"


@dataclass(frozen=True)
class _Question:
    topic: str
    question: str
    answer: Callable[[Release, GroupErrors | None], str | None]
    needs_custodian: bool = False


def report_on(
    release: Release,
    *,
    answers: str | Path | Mapping[str, str] | None = None,
    groups: GroupErrors | None = None,
) -> Report:
    """Answer every question, by the release's own files and by the custodian's answers.

    Parameters
    ----------
    answers : path or mapping, optional
        From ids of questions to text; a JSON file with one object.
    groups : GroupErrors, optional
        For the question about bias.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from bagwise import make_release
    >>> table = pa.table({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    >>> release = make_release(table, label="y", bounds=(0, 6), epsilon=1.0, bag_size=4,
    ...                        strategy="random")
    >>> found = report_on(release, answers={"custody": "A vault."})
    >>> found.to_json()["open"]
    ['bias', 'budget', 'trust', 'side_channels']
    """
    given = _read_answers(answers)
    found = tuple(
        Answer(
            id=name,
            topic=one.topic,
            question=one.question,
            answer=(said := one.answer(release, groups)),
            custodian=given.get(name),
            is_open=name not in given and (one.needs_custodian or said is None),
        )
        for name, one in QUESTIONS.items()
    )
    return Report(release.certificate.headline, release.digest, found, groups)


def _read_answers(answers: str | Path | Mapping[str, str] | None) -> Mapping[str, str]:
    if answers is None:
        return {}
    given = answers if isinstance(answers, Mapping) else _from_file(Path(answers))
    for name, text in given.items():
        check_name("question", name, QUESTIONS, ReleaseError)
        if not isinstance(text, str) or not text.strip():
            raise ReleaseError(f"the answer to {name!r} is not text.")
    return given


def _from_file(path: Path) -> Mapping[str, str]:
    # Written by hand, so that any spelling of JSON will do.
    with open_regular(path, error=ReleaseError) as handle:
        content = handle.read(LARGEST_STATEMENT + 1)
    problem = f"{path} is not a JSON object of questions and answers."
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        given = None
    if len(content) > LARGEST_STATEMENT or not isinstance(given, dict):
        raise ReleaseError(problem)
    return given


# --- the answers ---------------------------------------------------------------------------------


def _strength(release: Release, _groups: GroupErrors | None) -> str:
    epsilon, delta = release.certificate.epsilon, release.certificate.delta
    if epsilon is None or delta is None:
        return _NOTHING
    return (
        f"It is {exact(epsilon)}. Whoever knows everything else and finds two labels of a row "
        "equally likely can be right about it with a probability of at most "
        f"{chance_of_guessing(epsilon, delta):.3g}."
    )


def _delta(release: Release, _groups: GroupErrors | None) -> str:
    delta = release.certificate.delta
    if delta is None:
        return _NOTHING
    if delta == 0:
        return "It is 0: the promise has no exceptions."
    return (
        f"It is {exact(delta)}, which is {delta * release.bags.n_rows:.2g} over the number of rows."
    )


def _variant(release: Release, _groups: GroupErrors | None) -> str:
    if release.certificate.delta is None:
        return _NOTHING
    kind = "Pure" if release.certificate.delta == 0 else "Approximate"
    return f"{kind} label differential privacy: labels are protected, features are public."


def _unit(release: Release, _groups: GroupErrors | None) -> str:
    if not release.certificate.is_private:
        return _NOTHING
    protected = release.certificate.protected
    return f"{protected[:1].upper()}{protected[1:]}."


def _adjacency(release: Release, _groups: GroupErrors | None) -> str:
    if not release.certificate.is_private:
        return _NOTHING
    where = "" if release.certificate.bounds is None else " within the public bounds"
    return (
        "Tables with the same rows and features are neighbours if they differ in the labels of one "
        f"unit, which may be any{where}. Rows are neither added nor removed: their number is "
        "public."
    )


def _algorithm(release: Release, _groups: GroupErrors | None) -> str:
    made = release.provenance
    kinds = ", ".join(event.kind for event in release.certificate.events) or "none"
    return (
        f"Rows are put into bags of at least {made.bag_size} by strategy {made.strategy!r} with "
        f"scores {made.scores!r}; each bag has one {release.label_kind} label. Mechanisms: {kinds}."
    )


def _utility(release: Release, _groups: GroupErrors | None) -> str:
    low, high = f"{release.noise_sd.min():.3g}", f"{release.noise_sd.max():.3g}"
    said = (
        f"There are {release.bags.n_bags} bag labels, and their privacy noise has a standard "
        f"deviation of {low if low == high else f'{low} to {high}'}."
    )
    reason = release.provenance.chosen_because
    return said if reason is None else f"{said} Planned: {reason.text()}"


def _bias(_release: Release, groups: GroupErrors | None) -> str | None:
    if groups is None:
        return None
    biases = [abs(one.bias) for one in groups.groups if one.bias is not None]
    origin = "labels, exactly" if groups.from_labels else "the released bags"
    if not biases:
        return f"The bags do not tell the groups of {groups.column!r} apart."
    return (
        f"By {groups.column!r}, from {origin}: mean predictions are off by {max(biases):.3g} at "
        f"most in {len(biases)} groups; the table has each of them."
    )


def _budget(release: Release, _groups: GroupErrors | None) -> str:
    certificate = release.certificate
    if not certificate.is_private:
        return _NOTHING
    return (
        f"This release spends {certificate.headline}. Every other release, model, evaluation or "
        "choice of bounds from the same labels adds to it."
    )


def _trust(_release: Release, _groups: GroupErrors | None) -> str:
    return (
        "Central: the custodian sees all labels, and readers trust that the noise was added. "
        "bagwise verify shows what can be seen of that from outside."
    )


def _implementation(release: Release, _groups: GroupErrors | None) -> str:
    certificate: Certificate = release.certificate
    return (
        f"{certificate.software}; noise from: {certificate.noise_source}. Sums and noise are whole "
        "numbers, samplers are exact, and the accountant recomputes the promise when a release is "
        "verified."
    )


def _side_channels(_release: Release, _groups: GroupErrors | None) -> str:
    return (
        "Covered: rounding of floating-point numbers, the order of rows, messages, logs and files "
        "of the program. Not covered: how long a run takes, and who can read the machine."
    )


def _custody(_release: Release, _groups: GroupErrors | None) -> None:
    return None


QUESTIONS: Mapping[str, _Question] = {
    "strength": _Question("Strength", "How large is epsilon, and what does it mean?", _strength),
    "delta": _Question("Strength", "How large is delta?", _delta),
    "variant": _Question("Variant", "Which definition of privacy is met?", _variant),
    "unit": _Question("Unit", "Whose data, or what part of it, is protected?", _unit),
    "adjacency": _Question("Unit", "Which tables must look alike?", _adjacency),
    "algorithm": _Question("Algorithm", "How was the release computed?", _algorithm),
    "utility": _Question("Utility", "How much accuracy does privacy cost?", _utility),
    "bias": _Question("Bias", "Are some groups served worse than others?", _bias),
    "budget": _Question("Budget", "What do all releases spend together?", _budget, True),
    "trust": _Question("Trust", "Who must be trusted with what?", _trust, True),
    "implementation": _Question("Implementation", "What software drew the noise?", _implementation),
    "side_channels": _Question(
        "Implementation", "What else could tell about labels?", _side_channels, True
    ),
    "custody": _Question(
        "Custody", "Who holds the labels, under which protection, and for how long?", _custody, True
    ),
}
"""By id, in the order of the report."""
