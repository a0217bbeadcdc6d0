import os
import signal

import pytest

from bagwise.files.locks import undisturbed


def test_a_signal_waits_until_the_block_is_over():
    steps = []

    def two_steps():
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("second")
        steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        two_steps()
    assert steps == ["second"]


def test_blocks_inside_each_other_end_with_the_outer_one():
    steps = []

    def nested():
        with undisturbed():
            with undisturbed():
                os.kill(os.getpid(), signal.SIGINT)
            steps.append("outer")

    with pytest.raises(KeyboardInterrupt):
        nested()
    assert steps == ["outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
