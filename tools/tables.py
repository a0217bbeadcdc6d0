"""Write the tables of strategies and families into README and docs, from the registries.

``python -m tools.tables`` (``make tables``) rewrites what stands between the markers
``<!-- table: NAME -->`` and ``<!-- end of table -->``. A test says when that is due.
"""

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    find_strategy,
    measures_by_scores,
    spell_settings,
)
from bagwise.families import FAMILIES, Family
from bagwise.learn.fitting import LOSSES

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)

# How good a model is, by loss: instance, instance debiased, bag or aggregate. It follows from what
# a strategy says about itself. The numbers are those of the remarks below the tables.
OPEN = {
    "any": ("too flat (1)", "good", "good"),
    "compact": ("too flat (1)", "very good (4)", "very good (4)"),
    "sorted": ("very good (2)", "too steep (1)", "too steep (1)"),
}
PRIVATE = {
    "any": ("too flat (1)", "noisy", "noisy"),
    "compact": ("too flat (1)", "less noisy (3, 4)", "less noisy (3, 4)"),
    "sorted": ("good; start here (3)", "very noisy", "very noisy"),
}


def strategies() -> list[tuple[str, ...]]:
    """List the strategies by what they say about themselves."""
    heading = ("strategy", "bags", "reads scores", "sizes", "planner", "sparse")
    return [heading, *(_strategy(find_strategy(name)) for name in STRATEGIES)]


def _strategy(strategy: BaggingStrategy) -> tuple[str, ...]:
    scored = [f"with `{spell_settings(other)[0]}`" for other in _sorting(strategy)]
    return (
        f"`{strategy.name}`",
        strategy.summary,
        "yes" if strategy.uses_scores else ", ".join(scored) or "no",
        "those of the groups" if strategy.free_sizes else "about `bag_size`",
        _planner(strategy),
        "yes" if strategy.accepts_sparse else "no",
    )


def _planner(strategy: BaggingStrategy) -> str:
    if strategy.keeps_groups or (strategy.uses_scores and not strategy.compact):
        return "no"
    return "yes" if strategy.planned else "on request"


def _sorting(strategy: BaggingStrategy) -> Iterator[BaggingStrategy]:
    """Yield the strategy with one other parameter each, where that makes it read scores."""
    hints = typing.get_type_hints(type(strategy))
    for field in dataclasses.fields(strategy):  # type: ignore[arg-type]
        for value in typing.get_args(hints[field.name]):
            if typing.get_origin(hints[field.name]) is typing.Literal and value != field.default:
                other = dataclasses.replace(strategy, **{field.name: value})  # type: ignore[type-var]
                if other.uses_scores and not strategy.uses_scores:
                    yield other


def _group(strategy: BaggingStrategy) -> str:
    if strategy.uses_scores and not measures_by_scores(strategy):
        return "sorted"
    return "compact" if strategy.compact else "any"


def _by_loss(verdicts: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    rows: dict[str, list[str]] = {group: [] for group in verdicts}
    for name in STRATEGIES:
        strategy = find_strategy(name)
        rows.setdefault(_group(strategy), []).append(f"`{name}`")
        for other in _sorting(strategy):
            if (group := _group(other)) != _group(strategy):
                rows[group].append(f"`{name}` with `{spell_settings(other)[0]}`")
    heading = ("strategy", "instance", "instance, debiased", "bag or aggregate")
    return [heading, *((", ".join(rows[group]), *cells) for group, cells in verdicts.items())]


def families() -> list[tuple[str, ...]]:
    """List the families by what they say about themselves."""
    heading = ("family", "a row's label is", "range", "link", "losses")
    return [heading, *(_family(family) for family in FAMILIES.values())]


def _family(family: Family) -> tuple[str, ...]:
    missing = [f"`{loss}`" for loss in LOSSES if loss not in family.losses]
    return (
        f"`{family.name}`",
        family.summary,
        family.range_text,
        family.link_words,
        f"all but {', '.join(missing)}" if missing else "all",
    )


TABLES: dict[str, Callable[[], list[tuple[str, ...]]]] = {
    "strategies": strategies,
    "losses-not-private": lambda: _by_loss(OPEN),
    "losses-private": lambda: _by_loss(PRIVATE),
    "families": families,
}


def written(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of Markdown, the first being its heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:], ""])


def renewed(text: str) -> str:
    """Return a page with its tables as the registries have them."""
    return MARKED.sub(lambda m: m[1] + written(TABLES[m[2]]()) + m[4], text)


def pages() -> list[Path]:
    """Return the pages that may hold tables."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in found if "_generated" not in page.parts)]


def main() -> None:
    """Rewrite the tables."""
    for page in pages():
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
