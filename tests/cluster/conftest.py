import signal

import pytest


@pytest.fixture
def ordinary_interrupts():
    """Ctrl-C as in a shell; test runners may have other ideas."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
