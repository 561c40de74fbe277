"""A Markdown report as one HTML file: no network, no script, figures within."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from xml.etree import ElementTree

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token


class Anchors:
    """Gives each heading an id that no other has; `taken` are those of the page itself."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)

    def new(self, heading: str) -> str:
        """`where-a-cycle-goes`; a number behind it where it is taken."""
        words = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        anchor, again = words, 2
        while anchor in self._taken:
            anchor, again = f"{words}-{again}", again + 1
        self._taken.add(anchor)
        return anchor


FOLDED = {
    "How it was searched",
    "Left out of the search",
    "Alike and not alike",
    "GPU memory",
    "Where and how",
    "What the columns mean",
}
"""Sections that a reader opens where they are wanted; on paper all are open."""


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of the second level; heading and body are HTML."""

    anchor: str
    heading: str
    body: str
    folded: bool


def page(markdown: str, title: str, figures: Mapping[str, str]) -> str:
    """The page of a report.

    `figures` has the `<svg>` of each image of the report, by its path. Mark-up is Markdown's
    alone: HTML in it is text, links lead to http and https only, and other images are their words.
    """
    parser = _Parser(figures)
    tokens = parser.parse(markdown)
    starts = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == "h2"]
    first = 3 if tokens and tokens[0].tag == "h1" else 0
    lead = tokens[first : starts[0] if starts else len(tokens)]
    anchors = Anchors({"answer", "contents"})
    return _template().render(
        title=title,
        heading=_html(parser, tokens[1:2]) if first else escape(title),
        answer=_html(parser, _boxed(lead, "The answer", figures, anchors)),
        sections=[
            _section(parser, tokens[start:end], figures, anchors)
            for start, end in zip(starts, [*starts[1:], len(tokens)], strict=False)
        ],
    )


def _section(
    parser: MarkdownIt, tokens: Sequence[Token], figures: Mapping[str, str], anchors: Anchors
) -> Section:
    heading = tokens[1].content
    anchor = anchors.new(heading)
    body = _html(parser, _boxed(tokens[3:], heading, figures, anchors))
    return Section(anchor, _html(parser, tokens[1:2]), body, heading in FOLDED)


def _html(parser: MarkdownIt, tokens: Sequence[Token]) -> str:
    return str(parser.renderer.render(tokens, parser.options, {}))


def _boxed(
    tokens: Sequence[Token], heading: str, figures: Mapping[str, str], anchors: Anchors
) -> list[Token]:
    """`tokens` with what may be wide in boxes of its own, which scroll, also by keyboard."""
    found: list[Token] = []
    for index, token in enumerate(tokens):
        svg = None
        if token.type == "heading_open":
            heading = tokens[index + 1].content
            token.attrSet("id", anchors.new(heading))
        elif token.type == "table_open":
            name = escape(f"Table: {heading}")
            found.append(
                _raw(f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">')
            )
        elif token.type == "fence":
            token = _raw(f'<pre tabindex="0"><code>{escape(token.content)}</code></pre>')
        elif token.type == "inline":
            svg = _only_figure(token, figures)
            token.children = list(_safe(token.children or []))
        if svg is None:
            found.append(token)
        else:  # a figure cannot stand in the paragraph that is around it
            found[-1].hidden = tokens[index + 1].hidden = True
            found.append(_raw(f'<figure class="scroll" tabindex="0">{svg}</figure>'))
        if token.type == "table_close":
            found.append(_raw("</div>"))
    return found


def _only_figure(paragraph: Token, figures: Mapping[str, str]) -> str | None:
    """The figure that is all of a paragraph."""
    match paragraph.children:
        case [Token(type="image") as image]:
            return figures.get(str(image.attrGet("src")))
    return None


def _safe(words: Sequence[Token]) -> Iterator[Token]:
    """Inline mark-up that fetches nothing and tells other sites nothing."""
    for token in words:
        if token.type == "image":
            yield Token("text", "", 0, content=token.content)
            continue
        if token.type == "link_open":
            token.attrSet("rel", "noopener noreferrer")
        yield token


def _raw(html: str) -> Token:
    return Token("html_block", "", 0, content=f"{html}\n")


class _Parser(MarkdownIt):
    """CommonMark and tables, without HTML; `figures` are the images that it may show."""

    def __init__(self, figures: Mapping[str, str]) -> None:
        super().__init__("commonmark", {"html": False})
        self.enable("table")
        self.figures = figures

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return url in self.figures or url.lower().startswith(("https://", "http://"))


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tuner.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2")


_POINT = 4 / 3
"""CSS pixels in a point, the unit of a figure's own size."""
READABLE = 1.1
"""CSS pixels for a unit of the figure's view box, at least: its smallest words then have 9 px."""

_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(svg: str, name: str, alt: str) -> str:
    """The `<svg>` element of the file text `svg`, called `alt` to those who cannot see it.

    Ids get `name` in front: a page holds several figures, and each file counts from one. What
    nothing refers to loses its id; style sheets, metadata and scripts are left out.
    """
    root = ElementTree.fromstring(svg)  # noqa: S314 - matplotlib wrote it a moment ago
    _without_namespaces(root)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style", "script", "title"):
                parent.remove(child)
    _rename_ids(root, f"figure-{name}-")
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": alt,
        "style": f"min-width: {width * READABLE:.0f}px; max-width: {width * _POINT:.0f}px",
    }
    for element in root.iter():  # line ends between elements are nothing to see
        element.tail = None
        if element.text is not None and not element.text.strip():
            element.text = None
    return ElementTree.tostring(root, encoding="unicode")


def _without_namespaces(root: ElementTree.Element) -> None:
    """HTML knows `<svg>` and `href` without them."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: v for key, v in element.attrib.items()}


def _rename_ids(root: ElementTree.Element, prefix: str) -> None:
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "href" and value.startswith("#"):
                used.add(value[1:])
                element.set(key, f"#{prefix}{value[1:]}")
            elif found := _REFERENCE.findall(value):
                used.update(found)
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}\1)", value))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{prefix}{name}")
