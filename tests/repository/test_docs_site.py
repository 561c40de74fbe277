"""The site of docs/ as `make docs` builds it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="pip install '.[docs]' builds the site")
pytest.importorskip("material", reason="pip install '.[docs]' builds the site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error: a link or anchor that leads nowhere is one."""
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would silence what --strict counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_docs_is_in_the_site_and_in_its_menu(site: Path) -> None:
    """A page that is in no menu is found by nobody."""
    menu = (site / "index.html").read_text()
    for page in Path("docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file()
        assert f'href="{page.stem}.html"' in menu or page.stem == "index", page


def test_links_into_the_repository_lead_to_files_of_the_site(site: Path) -> None:
    """The reports are what every figure of the pages rests on."""
    search = (site / "search.html").read_text()
    report = "repository/results/h200_search_grid/20261130-060943/report.html"
    assert f'href="{report}"' in search
    assert "No speculation" in (site / report).read_text() or (site / report).is_file()
    assert (site / "repository/results/search_efficiency/quick.json").is_file()
    for page in site.glob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#:]+)["#]', page.read_text()):
            if page.name != "404.html":
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_site_asks_no_other_host(site: Path) -> None:
    """It is read inside companies, and from the disk."""
    for page in site.glob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert loaded == [], page.name
