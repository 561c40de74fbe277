"""What one long chain tells of shorter ones, on a real pair where SPECBENCH_REAL_PAIR names one.

Drafts of a chain do not depend on its length: wherever two chains verify at the same place of the
same text, the shorter one accepts what the longer one does, up to its length. That is exact. The
places differ between them, so that the accept length is predicted and not computed.
"""

import os
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from tests.sglang import test_real_pair
from tests.sglang.sweeping import swept
from tuner.ledger.run import Run
from tuner.measure.samples import RequestSample
from tuner.report.findings import Findings
from tuner.search.acceptance_curve import AcceptanceCurve, chain_of

LONG, SHORT = 5, 3

pytestmark = pytest.mark.skipif(
    test_real_pair.PLACE not in os.environ, reason=f"{test_real_pair.PLACE} is not set"
)


def accepted_by_place(sample: RequestSample) -> dict[int, int]:
    """Tokens before a verify -> drafts it accepted; without the last one, which may be cut.

    Empty where two verifies came in one chunk, as they can on a busy machine.
    """
    spec, chunks = sample.spec, sample.chunk_tokens
    if spec is None or len(chunks) != 1 + spec.verify_ct or chunks[0] != 1:
        return {}
    return dict(zip(accumulate(chunks[:-2]), (n - 1 for n in chunks[1:-1]), strict=True))


def compared(run: Run, short: int, long: int) -> tuple[int, int]:
    """(places where both verify, those of them where the shorter accepts min(short, longer))."""
    findings = Findings(run)
    samples: dict[int, dict[str, RequestSample]] = {}
    for each in findings.ranked:
        assert each.point is not None
        assert each.point.num_steps is not None
        (window,) = findings.windows(each, 1)
        samples[each.point.num_steps] = {s.prompt_id: s for s in window.samples}
    common = equal = 0
    for prompt, sample in samples[short].items():
        there, here = accepted_by_place(samples[long][prompt]), accepted_by_place(sample)
        for place in there.keys() & here.keys():
            common += 1
            equal += here[place] == min(short, there[place])
    return common, equal


def test_shorter_chains_accept_what_the_longer_one_does_and_are_predicted(tmp_path: Path) -> None:
    """Otherwise one launch could not stand for all step counts."""
    path = test_real_pair.sweep_file(tmp_path)
    sweep = yaml.safe_load(path.read_text())
    sweep["space"] = {"num_steps": [SHORT, LONG]}
    sweep["workload"] |= {"requests": 6, "output_tokens": 48}
    path.write_text(yaml.safe_dump(sweep))
    _, run = swept(path)
    common, equal = compared(run, SHORT, LONG)
    assert common > 20
    assert equal == common

    findings = Findings(run)
    by_steps = {each.point.num_steps: each for each in findings.ranked if each.point}
    told = chain_of(findings.windows(by_steps[LONG], 1), LONG)
    assert told is not None
    predicted = AcceptanceCurve((told,)).accept_length(SHORT)
    assert predicted is not None
    assert predicted.value == pytest.approx(by_steps[SHORT].metric(1, "accept_length"), rel=0.15)
