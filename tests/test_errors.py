import pytest

from bagwise import errors
from bagwise.errors import LabelError, StageError, shielded
from bagwise.show.stages import Stages

SECRET = "918273645.125"


def fail():
    raise ValueError(f"cannot parse {SECRET}")


def linked_exceptions(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_shielded_leaves_no_link_to_the_original_error():
    with pytest.raises(LabelError) as caught:
        shielded(fail, lambda error: LabelError("no number"))
    assert [str(error) for error in linked_exceptions(caught.value)] == ["no number"]
    frames = [entry.frame for entry in caught.traceback]
    assert not any(SECRET in repr(frame.f_locals) for frame in frames)


def test_shielded_passes_our_own_errors_on():
    def raise_ours():
        raise errors.BoundsError("ours")

    with pytest.raises(errors.BoundsError, match="ours"):
        shielded(raise_ours, lambda error: LabelError("theirs"))


def test_a_stage_names_itself_and_the_place_but_not_the_message():
    with pytest.raises(StageError) as caught, Stages()("aggregating"):
        fail()
    message = str(caught.value)
    assert "aggregating failed" in message
    assert "ValueError at test_errors.py" in message
    assert SECRET not in message
    assert caught.value.__context__ is None
