"""What a release says to the tools of others: Croissant, and the registry of deployments."""

import datetime
import json
import logging

import jsonschema
import mlcroissant
import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import bagwise as bw
from bagwise.errors import ReleaseError
from bagwise.release.descriptions import ASK, to_yaml
from tests.forging import rehash
from tests.golden.make import HERE

RELEASES = sorted(path.name for path in (HERE / "release-2").iterdir() if path.is_dir())

TEXT = {"type": "string", "minLength": 1}


def closed(required=(), **fields):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": fields,
    }


def one_of(*names):
    return {"enum": list(names)}


# The fields and choices of the registry's schema that an entry of ours may use, written down from
# its documentation; its own file is checked by hand when it changes.
REGISTRY = closed(
    ["url_slug", "status", "tier", "deployment"],
    url_slug={"type": "string", "pattern": "^[a-z0-9_]+$"},
    status=one_of("Draft"),
    tier=one_of(1, 2, 3),
    deployment=closed(
        ["basic"],
        basic=closed(
            [
                "name",
                "data_curators",
                "description",
                "intended_use",
                "data_product_type",
                "data_product_region",
                "publication_date",
            ],
            name=TEXT,
            data_curators={"type": "array", "items": TEXT, "minItems": 1},
            description=TEXT,
            intended_use=TEXT,
            data_product_type=one_of("Summary statistics", "Machine learning model", "Dataset"),
            data_product_region=TEXT,
            publication_date={"type": "string", "format": "date"},
        ),
        dp_variant=closed(
            variant_name=one_of("Pure DP", "Approximate DP", "Custom"),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=closed(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            privacy_parameters=closed(epsilon={"type": "number"}, delta={"type": "number"}),
            privacy_parameters_details=TEXT,
        ),
        deployment_model=closed(
            model_name=one_of("Local", "Central", "Shuffle", "Federated"),
            actors=TEXT,
            release_type=one_of("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=one_of("Static", "Dynamic"),
            access_type=one_of("Interactive", "Non-interactive"),
        ),
        accounting=closed(post_processing=TEXT, composition=TEXT),
        implementation=closed(
            preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, justification=TEXT
        ),
        administrative=closed(
            ["registry_authors"],
            notes=TEXT,
            registry_authors={"type": "array", "items": TEXT, "minItems": 1},
        ),
    ),
)


def read_deployment(path):
    return yaml.safe_load((path / "deployment.yaml").read_text())


def read_croissant(path):
    logging.getLogger("absl").setLevel(logging.ERROR)  # it recommends a licence and a citation
    return mlcroissant.Dataset(str(path / "croissant.json"))


@pytest.mark.parametrize("name", RELEASES)
def test_croissant_readers_accept_every_kind_of_release(name):
    path = HERE / "release-2" / name
    assert not list(read_croissant(path).metadata.issues.errors)
    content = json.loads((path / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    manifest = json.loads((path / "manifest.json").read_text())
    files = {file["name"]: file["sha256"] for file in content["distribution"]}
    assert files == {
        name: sha
        for name, sha in manifest["files"].items()
        if name not in ("croissant.json", "deployment.yaml")
    }


@pytest.mark.parametrize("name", RELEASES)
def test_the_registry_takes_every_kind_of_release(name):
    path = HERE / "release-2" / name
    entry = read_deployment(path)
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(REGISTRY, format_checker=checker).validate(entry)
    certificate = json.loads((path / "certificate.json").read_text())
    deployment = entry["deployment"]
    assert ("privacy_loss" in deployment) is certificate["private"]
    if certificate["private"]:
        parameters = deployment["privacy_loss"]["privacy_parameters"]
        assert parameters == {key: certificate[key] for key in ("epsilon", "delta")}
        pure = certificate["delta"] == 0
        variant = deployment["dp_variant"]["variant_name"]
        assert variant == ("Pure DP" if pure else "Approximate DP")
    assert deployment["basic"]["data_curators"] == [ASK]


def test_the_schema_here_is_not_one_that_takes_anything():
    entry = read_deployment(HERE / "release-2" / "means")
    entry["deployment"]["basic"]["data_product_type"] = "Bags"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(entry, REGISTRY)


HOSTILE = ["a b", 'quote "', "colon: yes", "é😀", "#", "</script>", "- x", "tab\t"]


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=60) for name in HOSTILE}
    days = [datetime.date(2020, 1, 1 + i % 28) for i in range(60)]
    kinds = {"old": pa.array(rng.random(60) < 0.5), "city": ["Bonn", "Pune"] * 30}
    table = pa.table({"key": days, **columns, **kinds, "y": rng.random(60)})
    table = table.set_column(0, "key", pa.array(range(60)))
    release = bw.make_release(
        table, label="y", id="key", bag_size=6, strategy="random", bounds=(0, 1), epsilon=1.0
    )
    release.save(tmp_path / "release")
    return tmp_path / "release", table


def test_strange_names_of_columns_are_read_back(saved):
    path, table = saved
    found = read_croissant(path)
    rows = list(found.records("instances"))
    assert len(rows) == 60
    content = json.loads((path / "croissant.json").read_text())
    fields = {field["name"]: field["@id"] for field in content["recordSet"][0]["field"]}
    assert list(fields) == [*table.column_names[:-1], "bag_id"]
    instances = bw.Release.load(path).instances
    assert [row[fields["é😀"]] for row in rows] == instances["é😀"].to_pylist()
    bags = list(found.records("bags"))
    assert [bag["bags/1"] for bag in bags] == [6] * 10
    assert read_deployment(path)["url_slug"] == "bagwise_release"


def test_no_description_holds_a_label(saved):
    path, table = saved
    text = (path / "croissant.json").read_text() + (path / "deployment.yaml").read_text()
    assert not any(f"{label:.6f}" in text for label in table["y"].to_pylist())


def edit(path, change):
    content = json.loads((path / "croissant.json").read_text())
    change(content)
    (path / "croissant.json").write_text(json.dumps(content, indent=2) + "\n")


FORGERIES = {
    "another key": lambda path: edit(path, lambda c: c.update(label="3.14 2.71")),
    "another word": lambda path: edit(path, lambda c: c.update(name="3.14 2.71")),
    "no date": lambda path: edit(path, lambda c: c.update(datePublished="3.14 2.71")),
    "another date": lambda path: edit(path, lambda c: c.update(datePublished="2000-01-01")),
    "a line more": lambda path: (path / "deployment.yaml").open("a").write("x: 3.14\n"),
    "another promise": lambda path: (path / "deployment.yaml").write_text(
        (path / "deployment.yaml").read_text().replace("epsilon: 1.0", "epsilon: 0.1")
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_descriptions_carry_nothing_else(saved, forgery):
    path, _ = saved
    FORGERIES[forgery](path)
    rehash(path, describe_again=False)
    with pytest.raises(ReleaseError, match=r"does not describe|no date") as caught:
        bw.Release.load(path)
    assert "3.14" not in str(caught.value)


def test_without_its_descriptions_a_release_is_not_complete(saved):
    path, _ = saved
    (path / "deployment.yaml").unlink()
    with pytest.raises(ReleaseError, match=r"deployment\.yaml is missing"):
        bw.Release.load(path)


def test_a_number_that_yaml_has_no_word_for_is_refused():
    with pytest.raises(ReleaseError, match="not finite"):
        to_yaml({"epsilon": float("inf")})


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True).map(lambda name: f"k_{name}"),
        st.text(st.characters(exclude_categories=["Cs"])) | NUMBERS,
        min_size=1,
    )
)
def test_what_is_written_as_yaml_is_read_back(values):
    """By a reader of YAML 1.1, which takes 1e-6 for text."""
    assert yaml.safe_load(to_yaml({"top": values})) == {"top": values}
