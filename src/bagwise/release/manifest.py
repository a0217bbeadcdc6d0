"""The manifest: what a release is, as one record with exact fields."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from bagwise._version import SOFTWARE_PATTERN
from bagwise.files.records import Record
from bagwise.requests.provenance import Provenance
from bagwise.rows.encode import Encoder

SCHEMA: Final = "bagwise-release/2"

BAG_ID: Final = "bag_id"

Software = Annotated[str, Meta(pattern=rf"^{SOFTWARE_PATTERN}\Z")]
Count = Annotated[int, Meta(ge=0)]


class TableColumns(Record, frozen=True):
    """The columns of both tables, each as ``name: type``."""

    instances: tuple[str, ...]
    bags: tuple[str, ...]


class Manifest(Record, frozen=True):
    """Everything about a release that is not in its tables or its certificate.

    Attributes
    ----------
    certificate : str
        The headline of the certificate, for a quick look.
    provenance : Provenance
    columns : TableColumns
    encoder : Encoder
        The recipe from feature columns to X.
    files : dict of str to str
        SHA-256 of every other file.
    """

    schema: Literal["bagwise-release/2"]
    software: Software
    certificate: str
    provenance: Provenance
    label_kind: Literal["mean", "pick"]
    n_rows: Count
    n_bags: Count
    n_left_out: Count
    columns: TableColumns
    encoder: Encoder
    files: dict[str, str]
