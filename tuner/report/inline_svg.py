"""A figure's SVG as an element of an HTML page."""

import re
from xml.etree import ElementTree

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
