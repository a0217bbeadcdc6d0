"""A release whose rows are in parts, until it is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise._version import SOFTWARE
from bagwise.errors import ReleaseError
from bagwise.files import signatures
from bagwise.files.parquet_files import WrittenTable
from bagwise.files.spill import SpillDirectory
from bagwise.privacy import Certificate
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.private_model import LinearScores
from bagwise.release import files
from bagwise.release.bags_in_parts import PartBags, leaving_rows
from bagwise.release.files import ReleaseFiles, check_rows_per_file
from bagwise.release.manifest import SCHEMA, Manifest, TableColumns
from bagwise.release.release import (
    BAG_ID,
    bag_columns,
    check_output,
    described,
    scores_to_json,
)
from bagwise.requests.provenance import Provenance
from bagwise.rng import SimulatedNoise
from bagwise.rows.encode import Encoder
from bagwise.show import html

ROWS_PER_FILE = 2**20
"""Rows of a file where nobody says how many."""


@dataclass(frozen=True, eq=False, repr=False)
class PartsRelease:
    """What is published, made in parts: drawn, and not yet written.

    Bags have their labels, once and for all: to save it twice writes the same labels twice. Rows
    are in their parts until `save` writes them. The private directory of the run, and the session
    of Spark, if there is one, must be there until then; the directory goes with this object.

    Attributes
    ----------
    certificate : Certificate
    provenance : Provenance
    encoder : Encoder
    label_kind : {"mean", "pick"}
    model : LinearScores or None
        The private model that rows were sorted by.
    largest_bag : int
    """

    bags: PartBags
    scratch: SpillDirectory
    columns: pa.Schema
    bag_table: WrittenTable
    certificate: Certificate
    provenance: Provenance
    encoder: Encoder
    label_kind: LabelKind
    largest_bag: int
    model: LinearScores | None = None
    digest: None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.bags.parts.num_rows

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return self.bags.n_bags

    def save(
        self,
        path: str | Path,
        *,
        force: bool = False,
        simulated_noise: bool = False,
        rows_per_file: int | None = None,
        sign: str | Path | None = None,
    ) -> Path:
        """Write the release as a directory, whole or not at all; see `Release.save`.

        Rows are written 2^20 to a file by default, to the private directory of the run, and moved:
        it is best in the file system of `path`.
        """
        key = None if sign is None else signatures.read_signing_key(Path(sign))
        if self.certificate.noise_source == SimulatedNoise.name and not simulated_noise:
            raise ReleaseError(
                "the noise of this release is simulated, so it is NOT PRIVATE. "
                "Save it with simulated_noise=True if that is what you want."
            )
        size = ROWS_PER_FILE if rows_per_file is None else rows_per_file
        check_rows_per_file(size, self.n_rows)
        target = Path(path)
        check_output(target, force=force)
        parts = self.bags.parts.write(
            partial(leaving_rows, schema=self.columns, firsts=self.bags.firsts.tolist()),
            [*self.columns.names, BAG_ID],
            self.scratch.new_file("rows"),
            rows_per_file=size,
        )
        if sum(part.rows for part in parts) != self.n_rows:
            raise AssertionError("every row leaves once")
        contents = ReleaseFiles(
            instances=parts,
            bags=self.bag_table,
            certificate=self.certificate.to_json(),
            manifest=self._manifest(),
            scores=scores_to_json(self.model, self.encoder, label=self.provenance.label),
        )
        signed = None if key is None else (lambda content: signatures.sign(content, key))
        files.write_release(contents, target, force=force, sign=signed)
        return target

    def _manifest(self) -> Manifest:
        return Manifest(
            schema=SCHEMA,
            software=SOFTWARE,
            certificate=self.certificate.headline,
            provenance=self.provenance,
            label_kind=self.label_kind,
            n_rows=self.n_rows,
            n_bags=self.n_bags,
            n_left_out=self.bags.left_out,
            columns=TableColumns(
                instances=described(self.columns.append(pa.field(BAG_ID, pa.int64()))),
                bags=described(bag_schema(self.provenance.classes)),
            ),
            encoder=self.encoder,
            files={},
        )

    def summary(self) -> dict[str, Any]:
        """Return the facts of a release that a reader wants first."""
        return {
            "privacy": self.certificate.headline,
            "rows": self.n_rows,
            "left_out": self.bags.left_out,
            "bags": self.n_bags,
            "smallest_bag": self.bags.smallest,
            "largest_bag": self.largest_bag,
            "label": self.provenance.label,
            "label_kind": self.label_kind,
            "strategy": self.provenance.strategy,
            "scores": self.provenance.scores,
            "features": len(self.encoder.feature_names),
        }

    def __repr__(self) -> str:
        return (
            f"PartsRelease({self.n_rows} rows, {self.n_bags} bags of at least "
            f"{self.bags.smallest}, {self.label_kind} labels, {self.certificate.headline})"
        )

    def _repr_html_(self) -> str:
        return html.table("Release", list(self.summary().items()))


def bag_schema(classes: Sequence[str] | None) -> pa.Schema:
    """Return the columns of the table of bags."""
    first, second, *others = bag_columns(classes)
    whole = [(name, pa.int64()) for name in (first, second)]
    return pa.schema([*whole, *((name, pa.float64()) for name in others)])
