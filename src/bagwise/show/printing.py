"""A page as PDF, by the browser that is there: none is brought along.

The browser gets a profile of its own that is thrown away, and no name that it could look up: the
page needs nothing, and what is on it goes nowhere.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bagwise.errors import OutputError

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PATIENCE = 120.0  # seconds, of which a page takes one or two


def find_browser() -> str | None:
    """Return the first browser that can print without a window; None if there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def write_pdf(html: str, target: Path) -> None:
    """Print a page into an existing file."""
    browser = find_browser()
    if browser is None:
        raise OutputError(
            f"no browser was found that prints {target.name}. Install Chromium (Debian: apt-get "
            "install chromium), or write .html and print that from any browser."
        )
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        page, printed = Path(folder, "page.html"), Path(folder, "page.pdf")
        page.write_text(html, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder}/profile",
            "--no-pdf-header-footer",
            f"--print-to-pdf={printed}",
            # Chromium refuses to start for root within its sandbox; the page holds no script.
            *(["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),
            page.as_uri(),
        ]
        try:
            subprocess.run(  # noqa: S603 (a fixed list of browsers, no shell)
                command, check=False, capture_output=True, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise OutputError(f"{browser} did not print {target.name} in time.") from None
        if not printed.exists():
            raise OutputError(f"{browser} printed nothing. Write .html, and print that from it.")
        target.write_bytes(printed.read_bytes())
