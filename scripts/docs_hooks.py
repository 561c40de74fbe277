"""What MkDocs is told beside mkdocs.yml: pages link to files of the repository, as GitHub has them.

docs/*.md link to ../results/..., ../sweeps/... and the like. On GitHub these lead to the file. In
the site each such file becomes part of the site itself, under repository/, and the link is put
right: reports and other Markdown as pages, the rest as it lies. So both work, the site needs no
network and no name of a host, and `mkdocs build --strict` finds a link that leads nowhere.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DOCS, OUTSIDE = "docs/", "repository/"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]*`", re.M | re.S)


def on_files(files: Files, config: Any) -> Files:
    """Add every file of the repository that a page links to, and those that these link to."""
    root = Path(config["config_file_path"]).parent
    pages = [file.src_uri for file in files.documentation_pages()]
    while pages:
        page = pages.pop()
        text = (root / real(page)).read_text(encoding="utf-8")
        for link in links(text):
            target = target_of(page, link)
            if not target.startswith(OUTSIDE) or files.get_file_from_path(target):
                continue
            if (path := root / real(target)).is_file():
                files.append(File.generated(config, target, abs_src_path=str(path)))
                pages += [target] if target.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the file's place in the site."""
    here = page.file.src_uri

    def put_right(link: re.Match[str]) -> str:
        if is_elsewhere(link[2]):
            return link[0]
        target = posixpath.relpath(target_of(here, link[2]), posixpath.dirname(here) or ".")
        return f"{link[1]}{target}{link[3]}"

    parts, end = [], 0
    for code in FENCE.finditer(markdown):
        parts += [LINK.sub(put_right, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(put_right, markdown[end:])])


def links(markdown: str) -> list[str]:
    """Relative links of a page, without those in code."""
    found = LINK.findall(FENCE.sub("", markdown))
    return [target for _, target, _ in found if not is_elsewhere(target)]


def real(uri: str) -> str:
    """Where a page or file of the site lies in the repository."""
    return uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else DOCS + uri


def target_of(page: str, link: str) -> str:
    """Where a link of a page leads, in the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(real(page)), link))
    return path.removeprefix(DOCS) if path.startswith(DOCS) else OUTSIDE + path


def is_elsewhere(link: str) -> bool:
    """An address, or a place that is not relative to the page."""
    return re.match(r"[a-z]+:|/", link) is not None
