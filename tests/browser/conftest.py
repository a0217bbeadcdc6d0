"""A real browser for pages that people look at, driven by Playwright; the machine brings it.

Pages are cut off from the network: whatever they ask for outside this machine fails, and the test
with it. So does an error in the console. `BAGWISE_TEST_BROWSER` names another Chromium.
"""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_WAIT = 20_000  # milliseconds: machines that run many tests at once are slow
expect.set_options(timeout=_WAIT)


def find_browser():
    """Return the path of a Chromium, or None."""
    named = os.environ.get("BAGWISE_TEST_BROWSER")
    if named:
        return named if Path(named).exists() else None
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium for all tests of a process."""
    path = find_browser()
    if path is None:
        pytest.skip("no browser: apt-get install chromium, or name one in BAGWISE_TEST_BROWSER")
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        launched = playwright.chromium.launch(executable_path=path, args=options)
        yield launched
        launched.close()


@pytest.fixture
def context(browser):
    """A fresh profile, without a network; problems of its pages fail the test at its end."""
    made = browser.new_context()
    made.set_default_timeout(_WAIT)
    problems = []
    made.route("**/*", lambda route: _local_only(route, problems))
    made.on("console", lambda said: _note(said, problems))
    made.on("weberror", lambda error: problems.append(str(error.error)))
    yield made
    made.close()
    assert problems == []


@pytest.fixture
def page(context):
    """One tab."""
    return context.new_page()


def _local_only(route, problems):
    address = urlsplit(route.request.url)
    if address.scheme in ("file", "data", "blob") or address.hostname == "127.0.0.1":
        route.continue_()
        return
    problems.append(f"asked for {address.geturl()}")
    route.abort()


def _note(said, problems):
    # A request that fails is an answer that a page must cope with; the browser reports it as well.
    if said.type == "error" and not said.text.startswith("Failed to load resource"):
        problems.append(said.text)
