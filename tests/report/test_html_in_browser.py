"""report.html as people meet it: on a phone, at a desk, in the dark, on paper, off-line."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.factories import make_hostile_run
from tuner.analysis.summary import summarise_run
from tuner.report.report import write_report
from tuner.runs.run import Run

COMMITTED = Path("results/h200_placement/20261130-022458")
SIZES = {"phone": (390, 844), "desk": (1280, 900)}

# Colours are drawn onto one pixel: that resolves every notation and see-through grounds.
FAINT = """() => {
  const pen = Object.assign(document.createElement('canvas'), {width: 1, height: 1})
    .getContext('2d', {willReadFrequently: true});
  const seen = colours => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    if (!node.data.trim()) continue;
    const style = getComputedStyle(node.parentElement), grounds = [];
    for (let up = node.parentElement; up; up = up.parentElement)
      grounds.unshift(getComputedStyle(up).backgroundColor);
    const words = node.parentElement.closest('svg') ? style.fill : style.color;
    const pair = [light(seen(grounds)), light(seen([...grounds, words]))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) found.push([node.data.trim().slice(0, 40), Math.round(100 * ratio) / 100]);
  }
  return found;
}"""

UNFOLD = "document.querySelectorAll('details').forEach(each => each.open = true)"

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

CUT = """[...document.querySelectorAll('.scroll, pre')].filter(box =>
  box.scrollWidth > box.clientWidth &&
  (getComputedStyle(box).overflowX !== 'auto' || box.tabIndex !== 0)).length"""

HIDDEN = """[...document.querySelectorAll('details > .within')].filter(part =>
  !part.checkVisibility({contentVisibilityAuto: true}) || part.clientHeight === 0).length"""


@dataclass
class Visit:
    """A page that is open, and what happened while it loaded."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", params=["measured", "hostile"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "hostile":
        run = make_hostile_run(folder)
    else:
        run = Run.open(shutil.copytree(COMMITTED, folder / COMMITTED.name))
    write_report(summarise_run(run))
    alone = tmp_path_factory.mktemp("alone") / "report.html"  # as mailed: without its folder
    return shutil.copy(run.report_html, alone)


@pytest.fixture(params=["light", "dark"])
def colours(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=SIZES)
def visit(
    request: pytest.FixtureRequest, browser: Any, report: Path, colours: str
) -> Iterator[Visit]:
    width, height = SIZES[request.param]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=colours, offline=True
    )
    found = Visit(context.new_page())
    found.page.on("console", lambda message: found.console.append(message.text))
    found.page.on("pageerror", lambda error: found.console.append(str(error)))
    found.page.on("dialog", lambda dialog: (found.console.append("dialog"), dialog.dismiss()))
    found.page.on("request", lambda asked: found.requests.append(asked.url))
    found.page.goto(report.as_uri())
    yield found
    context.close()


def test_it_can_be_read(visit: Visit, report: Path) -> None:
    """Nothing is fetched, runs, falls off the side of the page or fades into its ground."""
    assert visit.requests == [report.as_uri()]
    assert visit.console == []
    assert visit.page.evaluate(SIDEWAYS) == 0
    assert visit.page.evaluate(CUT) == 0
    visit.page.evaluate(UNFOLD)
    assert visit.page.evaluate(SIDEWAYS) == 0
    assert visit.page.evaluate(FAINT) == []


def test_the_answer_is_seen_first(visit: Visit) -> None:
    """A colleague has a minute, and a phone."""
    box = visit.page.locator("#answer > p").first.bounding_box()
    assert box["y"] < visit.page.viewport_size["height"] / 2


def test_figures_and_tables_have_names(visit: Visit) -> None:
    """Who cannot see a figure is told what it shows."""
    figures = visit.page.get_by_role("img")
    assert figures.count() == visit.page.locator("svg").count() > 0
    for number in range(figures.count()):
        assert figures.nth(number).get_attribute("aria-label")
        assert figures.nth(number).bounding_box()["height"] > 100
    visit.page.evaluate(UNFOLD)
    regions = visit.page.locator("div.scroll")
    assert visit.page.get_by_role("region", name="Table: ").count() == regions.count()


def test_a_link_to_a_folded_part_opens_it(visit: Visit) -> None:
    folded = visit.page.locator("#where-and-how")
    assert not folded.is_visible()
    visit.page.get_by_role("link", name="Where and how").click()
    assert folded.is_visible()


def test_on_paper_all_is_there_on_white(visit: Visit) -> None:
    """What is folded on paper is lost."""
    assert visit.page.evaluate(HIDDEN) > 0
    visit.page.emulate_media(media="print")
    visit.page.set_viewport_size({"width": 700, "height": 900})  # A4 within its margins
    assert visit.page.evaluate(HIDDEN) == 0
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert visit.page.evaluate(FAINT) == []
    assert visit.page.evaluate(SIDEWAYS) == 0
