"""Whatever is wrong with a file, it is refused with a clear error, or it is read."""

import numpy as np
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import BagwiseError, StageError
from bagwise.verifier import verify
from tests.fuzz.mutations import make_originals, mutants

CHUNK = 25


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return make_originals(tmp_path_factory.mktemp("originals"))


def read(mutant):
    """Read a mutant as its reader would, and go on to everything that is read off it."""
    if mutant.kind == "release":
        release = bw.Release.load(mutant.path)
        release.verify()
        return release.summary(), release._repr_html_(), release.training_data()
    if mutant.kind == "model":
        model = bw.load_model(mutant.path)
        verify(mutant.path)
        return str(model.summary()), model._repr_html_(), model.coefficients()
    return verify(mutant.path)


def run(mutant, table):
    """Do the same on the command line."""
    match mutant.kind:
        case "model":
            return CliRunner().invoke(app, ["evaluate", str(mutant.path), str(table)])
        case _:
            return CliRunner().invoke(app, ["verify", str(mutant.path), "--max-epsilon", "0.5"])


def check(originals, directory, seed, count):
    table = directory / "table.csv"
    table.write_text("x,city,y\n" + "".join(f"{i / 7},Bonn,{i % 3}\n" for i in range(12)))
    for mutant in mutants(originals, directory, np.random.default_rng(seed), count):
        try:
            read(mutant)
        except StageError as error:
            pytest.fail(f"{mutant.what}: {error}")
        except BagwiseError as error:
            assert "\x1b" not in str(error)  # noqa: PT017
        except Exception as error:
            error.add_note(mutant.what)
            raise
        result = run(mutant, table)
        assert result.exit_code in (0, 2, 3), (mutant.what, result.output, result.exception)
        assert not {"\x1b", "\u202e", "\x07"} & set(result.output), mutant.what


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(200 // CHUNK))
def test_mutants_are_refused_or_read(originals, tmp_path, seed):
    check(originals, tmp_path, seed, CHUNK)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(1000, 1000 + 2000 // CHUNK))
def test_many_mutants_are_refused_or_read(originals, tmp_path, seed):
    check(originals, tmp_path, seed, CHUNK)
