"""What docs/playbooks.md quotes is what the tool says: the words, with other numbers."""

import re
from itertools import combinations
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from tests.repository.pages import yaml_blocks
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset

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


def modelled(folder: Path) -> dict[int, list[float]]:
    """What the performance model gives of the batch playbook: speed-ups by steps, at each level."""
    path = folder / "batch64.yaml"
    path.write_text(block("batch64"))
    sweep = load_sweep(path).sweep
    machine = load_preset(sweep.engine.preset or "", sweep.engine.overrides)
    plain = Performance(machine, sweep.model.tp)
    found = {}
    for steps in sweep.space.num_steps:
        spec = Speculation("EAGLE3", steps, 1, steps + 1, sweep.model.tp)
        chain = Performance(machine, sweep.model.tp, spec)
        levels = sweep.workload.concurrency
        found[steps] = [chain.expected_tok_s(n) / plain.expected_tok_s(n) for n in levels]
    return found


def test_the_batch_playbook_has_one_answer_whatever_the_noise(tmp_path: Path) -> None:
    """Who repeats it has to find what the page says: windows of 64 streams differ by some per cent.

    Each way to judge (on average, at the worst level, at 64 alone) has a winner that is ahead by
    more; and the figures that are quoted are those of the sweep that is shown.
    """
    ratios = modelled(tmp_path)
    ways = {
        "average": {steps: prod(each) ** (1 / 3) for steps, each in ratios.items()},
        "min": {steps: min(each) for steps, each in ratios.items()},
        "64": {steps: each[2] for steps, each in ratios.items()},
    }
    winners = {}
    for name, way in ways.items():
        second, first = sorted(way, key=way.__getitem__)[-2:]
        assert way[first] > 1.05 * way[second], name
        winners[name] = first
    for one, other in combinations(ratios, 2):
        assert abs(ratios[one][0] / ratios[other][0] - 1) > 0.05, "at concurrency 1"
    section = PAGE.read_text().split("## Batch 64")[1].split("\n## ")[0]
    best, fastest = re.search(r"best: (\d+) step", section), re.search(r"64: (\d+) step", section)
    assert best and int(best[1]) == winners["average"]
    assert fastest and int(fastest[1]) == winners["64"] == winners["min"]
    assert f"here {winners['average']}, {winners['average']} and {winners['64']}, for" in section
    quoted = [float(each) for each in re.findall(r"(\d\.\d{3})x \([^)]*\) at", section)]
    assert quoted == pytest.approx(ratios[winners["average"]], rel=0.05)  # the model's: no prefill
