"""The questions of an evaluation of differential privacy, answered from a release.

They follow the parts of NIST SP 800-226: strength, unit, algorithm, utility and bias, trust,
implementation and custody. Questions that a release's files answer are answered here; only the
custodian can answer the others, which are marked as open until then.

References
----------
Near, Darais, Lefkovitz and Howarth (2025), Guidelines for evaluating differential privacy
guarantees, NIST Special Publication 800-226.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bagwise.errors import ReleaseError, check_name
from bagwise.files.json_files import LARGEST_STATEMENT
from bagwise.files.regular_files import open_regular
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import chance_of_guessing
from bagwise.release.release import Release
from bagwise.report.groups import GroupErrors

ASK = "The custodian must answer."

_NOTHING = "NOT PRIVATE: nothing is promised."

QUESTIONS: Mapping[str, tuple[str, str]] = {
    "strength": ("Strength", "How large is epsilon, and what does it mean?"),
    "delta": ("Strength", "How large is delta?"),
    "variant": ("Variant", "Which definition of privacy is met?"),
    "unit": ("Unit", "Whose data, or what part of it, is protected?"),
    "adjacency": ("Unit", "Which tables must look alike?"),
    "algorithm": ("Algorithm", "How was the release computed?"),
    "utility": ("Utility", "How much accuracy does privacy cost?"),
    "bias": ("Bias", "Are some groups served worse than others?"),
    "budget": ("Budget", "What do all releases spend together?"),
    "trust": ("Trust", "Who must be trusted with what?"),
    "implementation": ("Implementation", "What software drew the noise?"),
    "side_channels": ("Implementation", "What else could tell about labels?"),
    "custody": ("Custody", "Who holds the labels, under which protection, and for how long?"),
}
"""Topic and question by id, in the order of the report."""

FACTS = ("publisher", "purpose", "recipient")
"""What a custodian may also say, for whoever approves the release."""

_FOR_CUSTODIANS = {"budget", "trust", "side_channels", "custody"}  # files answer a part at most


@dataclass(frozen=True)
class Answer:
    """One question and its known answers.

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
    facts: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, for machines and for pages."""
        return {
            "headline": self.headline,
            "digest": self.digest,
            **self.facts,
            "open": [answer.id for answer in self.answers if answer.is_open],
            "answers": [asdict(answer) for answer in self.answers],
            "groups": None if self.groups is None else asdict(self.groups),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield self.headline
        yield from (f"{name}: {text}" for name, text in self.facts.items())
        for one in self.answers:
            yield ""
            yield f"{one.topic} ({one.id}): {one.question}"
            if one.answer:
                yield f"  {one.answer}"
            if one.custodian:
                yield f"  The custodian says: {one.custodian}"
            if one.is_open:
                yield f"  {ASK}"


def report_on(
    release: Release,
    *,
    answers: str | Path | Mapping[str, str] | None = None,
    groups: GroupErrors | None = None,
) -> Report:
    """Answer every question from the release's own files and the custodian's answers.

    Parameters
    ----------
    answers : path or mapping, optional
        From ids of questions to text; a JSON file with one object. It may also name the publisher,
        the purpose and the recipient.
    groups : GroupErrors, optional
        For the question about bias.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from bagwise import make_release
    >>> table = pa.table({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    >>> release = make_release(table, label="y", bounds=(0, 6), epsilon=1.0, bag_size=4,
    ...                        strategy="random")
    >>> report = report_on(release, answers={"custody": "A vault."})
    >>> report.to_json()["open"]
    ['bias', 'budget', 'trust', 'side_channels']
    """
    given = _read_answers(answers)
    known = {**_promised(release), **_computed(release), "bias": _bias(groups)}
    answered = tuple(
        Answer(
            id=name,
            topic=topic,
            question=question,
            answer=known.get(name),
            custodian=given.get(name),
            is_open=name not in given and (name in _FOR_CUSTODIANS or known.get(name) is None),
        )
        for name, (topic, question) in QUESTIONS.items()
    )
    facts = {name: given[name] for name in FACTS if name in given}
    return Report(release.certificate.headline, release.digest, answered, groups, facts)


def _read_answers(answers: str | Path | Mapping[str, str] | None) -> Mapping[str, str]:
    given: Any = answers or {}
    if isinstance(given, str | Path):  # written by hand, so that any spelling of JSON will do
        with open_regular(Path(given), error=ReleaseError) as handle:
            content = handle.read(LARGEST_STATEMENT + 1)
        with suppress(ValueError, RecursionError):
            given = json.loads(content)
        if len(content) > LARGEST_STATEMENT or not isinstance(given, dict):
            raise ReleaseError(f"{answers} is not a JSON object of questions and answers.")
    for name, text in given.items():
        check_name("question", name, [*QUESTIONS, *FACTS], ReleaseError)
        if not isinstance(text, str) or not text.strip():
            raise ReleaseError(f"the answer to {name!r} is not text.")
    return dict(given)


def _promised(release: Release) -> dict[str, str]:
    """Return the answers that the certificate contains."""
    certificate = release.certificate
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon is None or delta is None:
        return dict.fromkeys(
            ("strength", "delta", "variant", "unit", "adjacency", "budget"), _NOTHING
        )
    protected = certificate.protected
    where = "" if certificate.bounds is None else " within the public bounds"
    return {
        "strength": f"It is {exact(epsilon)}. Whoever knows everything else and finds two labels "
        "of a row equally likely can be right about it with a probability of at most "
        f"{chance_of_guessing(epsilon, delta):.3g}.",
        "delta": f"It is {exact(delta)}, which is {delta * release.bags.n_rows:.2g} over the "
        "number of rows."
        if delta
        else "It is 0: the promise has no exceptions.",
        "variant": f"{'Approximate' if delta else 'Pure'} label differential privacy: labels are "
        "protected, features are public.",
        "unit": f"{protected[:1].upper()}{protected[1:]}.",
        "adjacency": "Tables with the same rows and features are neighbours if they differ in the "
        f"labels of one unit, which may be any{where}. Rows are neither added nor removed: their "
        "number is public.",
        "budget": f"This release spends {certificate.headline}. Every other release, model, "
        "evaluation or choice of bounds from the same labels adds to it.",
    }


def _computed(release: Release) -> dict[str, str]:
    """Return the answers that other files contain."""
    made, certificate = release.provenance, release.certificate
    kinds = ", ".join(event.kind for event in certificate.events) or "none"
    low, high = f"{release.noise_sd.min():.3g}", f"{release.noise_sd.max():.3g}"
    # Of its forecast, made before anything was asked, no word: the report has one of the release.
    chosen = "" if made.chosen_because is None else made.chosen_because.text().partition(". ")[0]
    return {
        "algorithm": f"Rows are put into bags of at least {made.bag_size} by strategy "
        f"{made.strategy!r} with scores {made.scores!r}; each bag has one {release.label_kind} "
        f"label. Mechanisms: {kinds}.",
        "utility": f"There are {release.bags.n_bags} bag labels, and their privacy noise has a "
        f"standard deviation of {low if low == high else f'{low} to {high}'}."
        + (f" Bags were chosen as {chosen}." if chosen else ""),
        "trust": "Central: the custodian sees all labels, and readers trust that the noise was "
        "added. bagwise verify shows what can be seen of that from outside.",
        "implementation": f"{certificate.software}; noise from: {certificate.noise_source}. Sums "
        "and noise are whole numbers, samplers are exact, and the accountant recomputes the "
        "promise when a release is verified.",
        "side_channels": "Covered: rounding of floating-point numbers, the order of rows, "
        "messages, logs and files of the program. Not covered: how long a run takes, and who can "
        "read the machine.",
    }


def _bias(groups: GroupErrors | None) -> str | None:
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
