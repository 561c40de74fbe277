"""A real headless browser, where this machine has one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """A playwright Browser; the test is skipped, with what is missing, where there is none."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="pip install '.[browser]' and a Chromium on PATH run it"
    )
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("a Chromium on PATH runs it: apt-get install chromium")
    with api.sync_playwright() as playwright:
        # Root, as in a container, has no sandbox; what is opened is the test's own file.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
