"""The same verdict every time: the tests draw what they draw by chance from their own names.

Noise, picks and orders of rows have no seed in the product, on purpose. Tests that use them would
fail once in a while for no reason, so each test, and each fixture that several tests share, gets a
stream of its own that depends on its name alone: not on the other tests, nor on who runs them.
Processes that a test starts still draw from the operating system. The day on certificates is that
on which the tests began: midnight may come between two that have to be equal.

`make test-all` sets BAGWISE_FRESH=1, which leaves all draws, and Hypothesis's examples, to chance.
"""

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from bagwise.cli import console
from bagwise.privacy import circumstances
from bagwise.rng import SecureNoise

FRESH = os.environ.get("BAGWISE_FRESH") == "1"

# Nothing that a clock decides: compiling a kernel on first use takes longer than any sensible
# deadline, and a machine that does something else besides is slow to make examples.
settings.register_profile(
    "bagwise",
    deadline=None,
    derandomize=not FRESH,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("bagwise")
console.PATIENCE = 1e6


class _OneDay(datetime):
    """A clock that stands still."""

    began = datetime.now(UTC)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """Return when the tests began."""
        return cls.began.astimezone(tz)


circumstances.datetime = _OneDay  # type: ignore[attr-defined]


class _Streams:
    """What chance is replaced by: one stream at a time, in this process only."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._of_the_system, self._seeded = SecureNoise.words, np.random.default_rng
        self.begin("before any test")

    def begin(self, name: str) -> None:
        """Start the stream of a test or a fixture."""
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16])
        self.stream = self._seeded(seed)
        # What scikit-learn and others draw from that were given no state.
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002

    @contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Let a fixture have its stream, and go on afterwards as if it had drawn nothing."""
        before = self.stream, random.getstate(), np.random.get_state()  # noqa: NPY002
        self.begin(name)
        try:
            yield
        finally:
            self.stream = before[0]
            random.setstate(before[1])
            np.random.set_state(before[2])  # noqa: NPY002

    def words(self, noise: SecureNoise, count: int) -> NDArray[np.uint64]:
        """Draw words, in place of `SecureNoise.words`."""
        if os.getpid() != self._process:  # a fork must not repeat its parent's noise
            return self._of_the_system(noise, count)
        return self.stream.integers(0, 2**64, size=count, dtype=np.uint64)

    def generator(self, seed: Any = None) -> np.random.Generator:
        """Return a generator, in place of `numpy.random.default_rng`."""
        if seed is None and os.getpid() == self._process:
            seed = self.stream.integers(2**63)
        return self._seeded(seed)


if not FRESH:
    _streams = _Streams()

    def _words(noise: SecureNoise, count: int) -> NDArray[np.uint64]:
        return _streams.words(noise, count)

    SecureNoise.words = _words  # type: ignore[method-assign]
    np.random.default_rng = _streams.generator

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> None:
        """Give each test its own stream."""
        _streams.begin(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
        """Give what several tests share the same stream, whichever of them asks for it first."""
        if fixturedef.scope == "function":
            return (yield)
        with _streams.aside(f"{fixturedef.baseid} {fixturedef.argname} {request.param_index}"):
            return (yield)
