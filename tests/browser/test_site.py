"""The site in a browser, opened as files: no network, a search that finds, links that lead on."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"


@contextmanager
def served():
    handler = partial(SimpleHTTPRequestHandler, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_site_is_read_and_searched_without_a_network(page):
    # One test, so that one process builds it: quickly, where `make docs` has done so.
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "docs", "build/docs"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    page.goto((SITE / "index.html").as_uri())
    page.get_by_role("link", name="For custodians").first.click()
    expect(page.locator("h1")).to_contain_text("For custodians")
    page.locator("article").get_by_role("link", name="ledger").first.click()
    expect(page.locator("h1")).to_contain_text("Ledgers")
    page.locator("article").get_by_role("link", name="A privacy filter").click()
    expect(page.locator("h1")).to_contain_text("privacy filter")
    page.goto((SITE / "privacy" / "promise.html").as_uri())
    expect(page.locator("mjx-container").first).to_be_visible()  # typeset, from the site's files
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=staircase")
    # Results come one by one, so the fourth is waited for instead of counting those that are there.
    expect(page.locator("#search-results li a").nth(3)).to_be_visible()
    expect(page.locator("#search-results .context")).to_have_count(0)
    with served() as address:  # from a server there are excerpts, and titles come first
        page.goto(f"{address}/search.html?q=ledger")
        expect(page.locator("#search-results .context").nth(3)).to_be_visible()
        expect(page.locator("#search-results li a").first).to_contain_text("ledger")
        page.wait_for_load_state("networkidle")  # excerpts that are still being read
    page.goto((SITE / "_generated" / "command-line.html").as_uri())
    page.locator("article").get_by_role("link", name="bagwise report").click()
    expect(page.locator("#bagwise-report")).to_contain_text("--audit")
    page.goto((SITE / "_generated" / "api.html").as_uri())
    page.locator("article").get_by_role("link", name="BaggedGLM").click()
    expect(page.locator("[id='bagwise.BaggedGLM']")).to_be_visible()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto((SITE / "start" / "custodian.html").as_uri())
        (ROOT / "build" / "pages").mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ROOT / "build" / "pages" / f"site-{width}.png", full_page=True)
