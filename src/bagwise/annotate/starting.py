"""What a project starts with: its description, the rows that are kept, the designs to compare."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bagwise._version import SOFTWARE
from bagwise.annotate import files
from bagwise.annotate.designs import BOOSTED, Design, design_names, find_design
from bagwise.annotate.expected import YARDSTICK
from bagwise.annotate.pool import Pool
from bagwise.annotate.request import LabelKind
from bagwise.annotate.row_ids import ROW_ID, fingerprints, key_ids
from bagwise.bagging import STRATEGIES, traits_of
from bagwise.data.columns import find_column, select_features, without_dictionary
from bagwise.data.encode import Encoder
from bagwise.errors import ColumnError, MissingExtraError, ProjectError
from bagwise.planner.prior import Prior
from bagwise.rng import make_generator

AUTO = "auto"
_SEEDS = 2**31


def describe(
    rows: pa.Table,
    kind: LabelKind,
    *,
    show: Sequence[str] | None,
    id: str | None,
    features: Sequence[str] | None,
    exclude: Sequence[str],
    nulls: str,
    max_levels: int,
    prior: Prior,
    seed: int | None,
) -> tuple[files.ProjectFile, pa.Table]:
    """Return what a project file says, and the rows that are kept with it."""
    names = select_features(
        rows, reserved=[n for n in (kind.name, id) if n], features=features, exclude=exclude
    )
    encoder = Encoder.for_table(
        rows, names, named=features or (), max_levels=max_levels, nulls=nulls
    )
    shown = names if show is None else list(show)
    for name in shown:
        find_column(rows, name, role="show column")
    if kind.name in shown or len(set(shown)) != len(shown):
        raise ColumnError("show names the label, or a column twice. Name others once.")
    kept = rows.select([name for name in rows.column_names if name in {*names, *shown}])
    plain = [without_dictionary(column) for column in kept.columns]
    kept = pa.table(plain, names=kept.column_names)
    ids = key_ids(rows, id) if id is not None else fingerprints(kept)
    id_name = id or ROW_ID
    kept = kept.drop_columns([id_name]) if id_name in kept.column_names else kept
    file = files.ProjectFile(
        schema=files.SCHEMA,
        software=SOFTWARE,
        label=kind.name,
        family=kind.family.name,
        bounds=kind.bounds,
        classes=kind.classes,
        id=id_name,
        show=tuple(shown),
        signal_sd=prior.signal_sd,
        label_noise_sd=prior.label_noise_sd,
        factor=prior.factor,
        misfit=prior.misfit,
        seed=_seed_of(seed),
        encoder=encoder,
    )
    return file, kept.add_column(0, id_name, pa.array(ids, pa.string()))


def _seed_of(seed: int | None) -> int:
    """Return a seed that a file can keep."""
    if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
        return seed
    if seed is not None:
        raise ProjectError("seed must be a whole number that is not negative.")
    return int(make_generator(None).integers(_SEEDS))


def compared_designs(design: str, *, first: bool) -> list[str]:
    """Return the designs to compare: all that make sense, or the named one and random rows."""
    if design != AUTO:
        find_design(design)  # or say which there are
        return list(dict.fromkeys([design, YARDSTICK]))
    planned = [f"bags-{name}" for name, kind in STRATEGIES.items() if traits_of(kind).planned]
    every = design_names(with_model=not first)
    return [
        name for name in every if name in planned or name == BOOSTED or not name.startswith("bags-")
    ]


def those_that_run(names: Sequence[str], *, named: str) -> list[Design]:
    """Return designs, without those that need a part which is not installed."""
    probe = Pool(np.arange(8.0)[:, None], Prior(1.0, 1.0), predictions=np.arange(8.0))
    runnable = []
    for name in names:
        design = find_design(name)
        try:
            design.draw(probe, budget=2, pick="random", rng=make_generator(0))
        except MissingExtraError:
            if name == named:
                raise
            continue
        runnable.append(design)
    return runnable
