"""report.html says what report.md says, in one file that no name or log line can break out of."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from tests.factories import SWEEP, Trial, hostile_warning, make_hostile_run, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.report.html import FOLDED, page
from tuner.report.report import write_report
from tuner.runs.run import Run

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Parsed(HTMLParser):
    """What is in a page: its elements, and its words outside of figures and style sheets.

    Raises AssertionError where tags do not balance.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.title = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self._open, f"<{tag}/> is none of HTML's"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "title" in self._open:
            self.title += data
        if not {"svg", "style", "title", "nav"} & set(self._open):
            self.words += data.split()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_hostile_run(tmp_path_factory.mktemp("hostile"))
    write_report(summarise_run(run))
    return run


@pytest.fixture(scope="module")
def html(hostile: Run) -> str:
    return hostile.report_html.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(html: str) -> Parsed:
    return Parsed(html)


def test_it_says_what_the_markdown_says(hostile: Run, parsed: Parsed) -> None:
    """Two reports of a run that differ are one too many: every word, in the same order."""
    plain = MarkdownIt("commonmark", {"html": False}).enable(["table"]).disable(["image", "link"])
    text = re.sub(
        r"^!\[[^]]*\]\(figures/\w+\.svg\)$", "", hostile.report_md.read_text(), flags=re.M
    )
    assert "alert(1)" in text
    assert parsed.words == Parsed(plain.render(text)).words


def test_names_and_messages_are_words_and_nothing_else(parsed: Parsed) -> None:
    """A model's name or a log line must not run, fetch or hide anything at the reader's."""
    tags = Counter(name for name, _ in parsed.elements)
    for tag in ("script", "img", "iframe", "object", "embed", "link", "base", "form", "http:"):
        assert tag not in tags
    assert tags["style"] == tags["title"] == tags["h1"] == 1
    assert tags["svg"] == len(parsed.all("figure"))
    for name, attributes in parsed.elements:
        assert not [key for key in attributes if key.startswith("on")], name
        if "href" in attributes:
            assert str(attributes["href"]).startswith("#")
    assert "<script>alert(1)</script>" in parsed.words
    assert "No heading" not in [section.strip() for section in parsed.words]


def test_it_needs_no_network_and_no_script(html: str, parsed: Parsed) -> None:
    """It is mailed, and opened where the run folder and the network are not."""
    policies = [each for each in parsed.all("meta") if "http-equiv" in each]
    assert "default-src 'none'" in str(policies[0]["content"])
    for _, attributes in parsed.elements:
        assert not {"src", "srcset", "action", "background"} & set(attributes)
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)
    assert len(html.encode()) < 1_000_000


def test_every_link_and_reference_leads_to_one_place(parsed: Parsed) -> None:
    ids = Counter(attributes["id"] for _, attributes in parsed.elements if "id" in attributes)
    assert {name for name, times in ids.items() if times > 1} == set()
    links = [str(a["href"])[1:] for _, a in parsed.elements if "href" in a]
    assert set(links) <= set(ids)
    clips = [str(a["clip-path"]) for _, a in parsed.elements if "clip-path" in a]
    assert clips
    assert {clip.removeprefix("url(#").removesuffix(")") for clip in clips} <= set(ids)
    contents = [str(a["href"]) for a in parsed.all("a")]
    assert len(contents) == 1 + len(parsed.all("h2"))


def test_every_figure_has_the_name_that_the_markdown_gives_it(hostile: Run, parsed: Parsed) -> None:
    names = re.findall(r"^!\[(.*)\]\(figures", hostile.report_md.read_text(), re.M)
    assert names
    assert [(svg["role"], svg["aria-label"]) for svg in parsed.all("svg")] == [
        ("img", name) for name in names
    ]


def test_a_simulated_run_says_so_in_the_title_and_first(hostile: Run, parsed: Parsed) -> None:
    """A number of a performance model that looks measured would be a lie."""
    assert parsed.title == f"trial/{hostile.id} (simulated)"
    assert parsed.words[:3] == ["trial", "(simulated)", "Simulated."]


def test_the_same_run_gives_the_same_bytes(hostile: Run, html: str) -> None:
    write_report(summarise_run(hostile))
    assert hostile.report_html.read_text(encoding="utf-8") == html


def test_it_is_valid(html: str) -> None:
    html5lib = pytest.importorskip("html5lib", reason="the extra `browser` has html5lib")
    html5lib.HTMLParser(strict=True).parse(html)


def test_a_measured_run_without_figures_has_its_own_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    run = make_run(tmp_path, [Trial(None, 90.0)], sweep=SWEEP)
    write_report(summarise_run(run))
    assert Parsed(run.report_html.read_text()).title == f"trial/{run.id}"


def test_folded_sections_are_sections_of_the_report() -> None:
    """A heading that was renamed would be folded no more."""
    template = Path("tuner/report/templates/report.md.j2").read_text()
    assert set(re.findall(r"^## (.*)$", template, re.M)) > FOLDED


class TestPage:
    """What the report's own escaping should keep out, did it ever fail."""

    def test_html_in_the_markdown_is_text(self) -> None:
        shown = Parsed(page("# a\n\n<script>x</script>\n\na <b onclick=x>b</b>\n", "<t>", {}))
        assert not shown.all("script")
        assert not shown.all("b")
        assert shown.title == "<t>"

    @pytest.mark.parametrize(
        "url",
        ["javascript:x", "JaVaScRiPt:x", "data:text/html,x", "file:///x", "//x", "vbscript:x"],
    )
    def test_only_web_addresses_are_links(self, url: str) -> None:
        shown = Parsed(page(f"# a\n\n[x]({url}) <{url}>\n\n![x]({url})\n", "t", {}))
        assert [a["href"] for a in shown.all("a")] == ["#answer"]

    def test_a_link_tells_the_other_side_nothing(self) -> None:
        shown = Parsed(page("# a\n\n[x](https://example.org)\n", "t", {}))
        assert shown.all("a")[0] == {"href": "https://example.org", "rel": "noopener noreferrer"}

    def test_an_image_that_is_no_figure_is_its_words(self) -> None:
        text = "# a\n\n![far](https://example.org/x.png)\n\nsee ![near](figures/a.svg) there\n"
        shown = Parsed(page(text, "t", {"figures/a.svg": "<svg></svg>"}))
        assert not shown.all("img")
        assert not shown.all("svg")
        assert shown.words == ["a", "far", "see", "near", "there"]

    def test_equal_headings_have_anchors_of_their_own(self) -> None:
        shown = Parsed(page("# a\n\n## One\n\n### One\n\n## One\n\n## Contents\n", "t", {}))
        anchors = [a["id"] for tag in ("h2", "h3") for a in shown.all(tag)]
        assert anchors == ["one", "one-3", "contents-2", "one-2"]


def test_a_value_with_control_characters_costs_no_report(tmp_path: Path) -> None:
    """Figures are XML, which has no ESC; and a right-to-left override would turn what follows."""
    odd = "\x1b[31mred\u202e\x07\ufffe"
    trials = [
        Trial(None, 90.0),
        Trial(
            make_point(2, env=(("NCCL_PROTO", odd),)),
            100.0,
            checks=[hostile_warning() | {"message": odd}],
        ),
        Trial(make_point(3), outcome="failed", failure="CRASH", message=odd),
    ]
    run = make_run(tmp_path / "runs", trials)
    write_report(summarise_run(run))
    for text in (run.report_html.read_text(), run.report_md.read_text()):
        shown = text.replace(odd, "")  # the launch command, which is to be copied
        assert "NCCL_PROTO=\\x1b[31mred\\u202e\\x07\\ufffe" in shown
        assert not set("\x1b\u202e\x07\ufffe") & set(shown)
    for figure in run.figures.glob("*.svg"):
        ElementTree.parse(figure)


def test_a_pipe_in_a_value_is_shown_as_it_is(tmp_path: Path) -> None:
    """A reader copies the value from the first line; `a\\|b` is another one."""
    value = "a|b\\|c`"
    trials = [Trial(None, 90.0), Trial(make_point(2, env=(("NCCL_PROTO", value),)), 100.0)]
    run = make_run(tmp_path / "runs", trials)
    write_report(summarise_run(run))
    spans = re.findall(r"<code>(2 steps.*?)</code>", run.report_html.read_text())
    assert len(spans) > 3
    assert set(spans) == {f"2 steps, 3 tokens, NCCL_PROTO={value}"}
