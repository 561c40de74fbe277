"""What docs/playbooks.md quotes is what the tool says: the words, with other numbers."""

import re
from pathlib import Path

from click.testing import CliRunner
from markdown_it import MarkdownIt

from tests.pages import yaml_blocks
from tuner.cli.commands import specbench
from tuner.sweep.door import load_sweep

PAGE = Path("docs/playbooks.md")
SHORT = """
workload: {prompts: "builtin:chat", requests: 2, output_tokens: 24}
measure: {warmup_requests: 0, repeats: 2, racing: false}
"""
"""In place of the page's workload: the sentences are the same, in seconds."""


def block(name: str) -> str:
    (found,) = (b.text for b in yaml_blocks() if b.page == PAGE and f"name: {name}\n" in b.text)
    return found


def quotes(section: str) -> list[str]:
    """The paragraphs of the quotations of a section."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    quoted = re.findall(r"^> ?(.*)$", text, re.M)
    tokens = MarkdownIt("commonmark").parse("\n".join(quoted))
    return [token.content for token in tokens if token.type == "inline"]


def masked(text: str) -> str:
    """One line, without numbers, plurals of steps and marks."""
    text = " ".join(text.replace("*", "").replace("`", "").split())
    return re.sub(r"-?\d[\d.,]*", "#", text).replace("# steps,", "# step,")


def swept(name: str, folder: Path, more: str = "") -> tuple[str, str]:
    """The output and the report of a playbook's sweep, with a short workload."""
    text = re.sub(r"^(workload|search): .*\n", "", block(name), flags=re.M) + SHORT + more
    path = folder / f"{name}.yaml"
    path.write_text(text)
    load_sweep(path)
    words = ["sweep", str(path), "--out", str(folder / "out")]
    done = CliRunner().invoke(specbench, words, standalone_mode=False)
    assert done.exception is None, done.output
    (report,) = (folder / "out").glob("*/report.md")
    return done.output, report.read_text()


def test_a_report_says_what_is_quoted_of_it(tmp_path: Path) -> None:
    """A reader who looks for a sentence of the page in the own report has to find it.

    One run for both sections: where speculation loses, the sentences are the same.
    """
    _, report = swept("accept19", tmp_path)
    said = re.sub(r" \(# without those that the ends [^)]*\)", "", masked(report))  # short answers
    for section in ("Speculation is slower than my baseline", "Acceptance of 20 percent"):
        quoted = quotes(section)
        assert len(quoted) >= 2
        for paragraph in quoted:
            for sentence in re.split(r"(?<=[.:]) (?=[A-Z])", masked(paragraph)):
                assert sentence in said, sentence


def test_nccl_settings_are_left_out_as_the_page_says(tmp_path: Path) -> None:
    output, _ = swept("pcie", tmp_path, "search: {trials: 1}\n")
    quoted = PAGE.read_text().split("note: communication")[1].split("    ...")[0]
    assert masked("communication" + quoted) in masked(output)
    assert "209 of 216 points are not launched" in quoted
    assert "209 of 216 points are not launched" in " ".join(output.split())
