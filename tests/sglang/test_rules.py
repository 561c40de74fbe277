"""What a release of SGLang would refuse or die of is said before anything is launched."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.config.loader import load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.preflight.plan import make_plan
from tuner.server.base import Checked, server_config
from tuner.sglang.releases import releases
from tuner.sglang.rules import RULES

SWEEP = """\
name: s
engine: {kind: sglang, python: /no/such/python}
model: {target: t, DRAFTalgorithm: ALGORITHM, tp: TP}
server:
  flags: {FLAGS}
  env: {ENV}
space:
  SPACE
workload: {concurrency: [LEVEL]}
"""

CheckSweep = Callable[..., Checked]


@pytest.fixture
def check(tmp_path: Path) -> CheckSweep:
    """Hold a sweep against a release."""

    def write_and_check(
        release: str,
        flags: str = "",
        algorithm: str = "EAGLE3",
        topk: str | None = None,
        steps: str = "[1, 2, 3]",
        more: str = "",
        env: str = "",
        tp: int = 1,
        level: int = 1,
    ) -> Checked:
        space = [] if algorithm == "NGRAM" else [f"num_steps: {steps}"]
        space += [f"eagle_topk: {topk}"] if topk else []
        space += [more] if more else []
        filled = SWEEP.replace("DRAFT", "" if algorithm == "NGRAM" else "draft: d, ")
        for word, text in (
            ("ALGORITHM", algorithm),
            ("TP", str(tp)),
            ("FLAGS", flags),
            ("ENV", env),
            ("SPACE", "\n  ".join(space) or "num_draft_tokens: [8]"),
            ("LEVEL", str(level)),
        ):
            filled = filled.replace(word, text)
        path = tmp_path / "s.yaml"
        path.write_text(filled, encoding="utf-8")
        loaded = load_sweep(path)
        return make_engine(loaded.sweep, release).check(loaded)

    return write_and_check


def test_chains_and_flags_that_exist_are_accepted_by_every_release(check: CheckSweep) -> None:
    """A rule that fires where SGLang is content makes the whole tool useless there."""
    for release in releases():
        for algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"):
            flags = "attention-backend: triton, mem-fraction-static: 0.8, page-size: 1"
            checked = check(release, flags, algorithm)
            assert not checked.loaded.space.excluded


@pytest.mark.parametrize(
    ("release", "given", "place", "message"),
    [
        # one line for each rule: release, sweep, the line that is blamed, the end of the message
        ("0.5.23", {"flags": "attention-backend: trtllm_mha", "topk": "[1, 2]"},
         "space.eagle_topk[1]", "has no trees"),
        ("0.5.17", {"flags": "decode-attention-backend: flashmla", "topk": "[2]", "steps": "[2]"},
         "space.eagle_topk[0]", "has no trees"),
        ("0.5.12", {"flags": "page-size: 64, attention-backend: triton", "topk": "[2]"},
         "server.flags.page-size", "needs attention-backend flashinfer or fa3, not triton"),
        ("0.5.23", {"flags": "page-size: 64, attention-backend: triton", "algorithm": "NGRAM"},
         "server.flags.page-size", "needs attention-backend flashinfer, not triton"),
        ("0.5.8", {"flags": "attention-backend: cutlass_mla"},
         "server.flags.attention-backend", "cannot draft with attention back-end cutlass_mla"),
        ("0.5.8", {"flags": "speculative-draft-attention-backend: fa4"},
         "server.flags.speculative-draft-attention-backend", "cannot draft with"),
        ("0.5.8", {"flags": "enable-dp-attention: true", "algorithm": "STANDALONE"},
         "server.flags.enable-dp-attention", "STANDALONE does not work with DP attention"),
        ("0.5.23", {"flags": "attn-dp-size: 2", "algorithm": "NGRAM"},
         "server.flags.attn-dp-size", "NGRAM does not work with DP attention"),
        ("0.5.17", {"flags": "pp-size: 2"}, "server.flags.pp-size", "write pp-size: 1"),
        ("0.5.23", {"flags": "pp-size: 2"}, "server.flags.pp-size", "SGLANG_ENABLE_PP_SPEC=1"),
        ("0.5.8", {"env": "SGLANG_ENABLE_SPEC_V2: 1", "topk": "[1, 2]"},
         "space.eagle_topk[1]", "takes eagle_topk 1 only"),
        ("0.5.9", {"flags": "speculative-moe-runner-backend: flashinfer_trtllm"},
         "server.flags.speculative-moe-runner-backend", "from SGLang 0.5.10 on"),
        ("0.5.18", {"flags": "enable-lora: true"}, "server.flags.enable-lora", "NGRAM only"),
        ("0.5.13", {"flags": "speculative-use-rejection-sampling: true"},
         "server.flags.speculative-use-rejection-sampling", "0.5.13 has no"),
        ("0.5.14", {"flags": "speculative-use-rejection-sampling: true", "algorithm": "NGRAM"},
         "server.flags.speculative-use-rejection-sampling", "works with EAGLE, EAGLE3 and NEXTN"),
        ("0.5.14", {"flags": "speculative-use-rejection-sampling: true", "topk": "[1, 2]"},
         "space.eagle_topk[1]", "needs eagle_topk: [1]"),
        ("0.5.14", {"flags": "speculative-use-rejection-sampling: true, "
                             "speculative-accept-threshold-acc: 0.9"},
         "server.flags.speculative-accept-threshold-acc", "leave one of them away"),
        ("0.5.22", {"flags": "speculative-use-rejection-sampling: true, "
                             "enable-deterministic-inference: true"},
         "server.flags.enable-deterministic-inference", "before SGLang 0.5.23"),
        ("0.5.15", {"flags": "speculative-use-rejection-sampling: true, "
                             "enable-multi-layer-eagle: true"},
         "server.flags.enable-multi-layer-eagle", "before SGLang 0.5.16"),
        ("0.5.10", {"flags": "speculative-adaptive: true"},
         "server.flags.speculative-adaptive", "SGLang 0.5.10 has no --speculative-adaptive"),
        ("0.5.11", {"flags": "speculative-adaptive: true"},
         "server.flags.speculative-adaptive", "disable-overlap-schedule: true"),
        ("0.5.17", {"flags": "speculative-adaptive: true", "topk": "[1, 2]"},
         "space.eagle_topk[1]", "needs eagle_topk: [1]"),
        ("0.5.17", {"flags": "speculative-adaptive: true, enable-pdmux: true"},
         "server.flags.enable-pdmux", "does not work with enable-pdmux"),
        ("0.5.17", {"flags": "speculative-adaptive: true", "algorithm": "STANDALONE"},
         "server.flags.speculative-adaptive", "works with EAGLE, EAGLE3 and NEXTN only"),
        ("0.5.8", {"flags": "speculative-token-map: m", "algorithm": "EAGLE", "tp": 2},
         "server.flags.speculative-token-map", "works with tp 1 or draft_tp 1 only"),
        ("0.5.17", {"flags": "chunked-prefill-size: 100, page-size: 64"},
         "server.flags.chunked-prefill-size", "no multiple of page-size 64"),
        # flags: names, kinds, choices
        ("0.5.8", {"flags": "cuda-graph-max-bss: 4"},
         "server.flags.cuda-graph-max-bss", "did you mean --cuda-graph-max-bs?"),
        ("0.5.8", {"flags": "cuda-graph-backend-prefill: full"},
         "server.flags.cuda-graph-backend-prefill", "0.5.8 has no --cuda-graph-backend-prefill"),
        ("0.5.8", {"flags": "attention-backend: qsa"},
         "server.flags.attention-backend", "wants one of triton, torch_native"),
        ("0.5.8", {"flags": "page-size: big"}, "server.flags.page-size", "wants a whole number"),
        ("0.5.8", {"flags": "disable-radix-cache: 1"},
         "server.flags.disable-radix-cache", "is a switch, write true or false"),
        ("0.5.8", {"more": "flags: {attention-backend: [triton, fa9]}"},
         "space.flags.attention-backend[1]", "wants one of"),
        ("0.5.8", {"more": "flags: {speculative-attention-mode: [decode, prefil]}"},
         "space.flags.speculative-attention-mode[1]", "wants one of prefill, decode"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_refused_at_its_line(
    check: CheckSweep, release: str, given: dict, place: str, message: str
) -> None:
    """Each of these costs a load of the weights, or a night, when the server finds it out."""
    with pytest.raises(UserError) as refused:
        check(release, **given)
    assert refused.value.where is not None
    assert refused.value.where.split(":")[-1].isdigit()
    assert refused.value.message.startswith(f"{place}: ")
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("release", "given"),
    [
        ("0.5.13", {"flags": "page-size: 64, attention-backend: triton", "topk": "[2]"}),
        ("0.5.10", {"flags": "speculative-moe-runner-backend: flashinfer_trtllm"}),
        ("0.5.19", {"flags": "enable-lora: true"}),
        ("0.5.23", {"flags": "enable-lora: true", "algorithm": "NGRAM"}),
        ("0.5.12", {"env": "SGLANG_ENABLE_SPEC_V2: 1", "topk": "[1, 2]"}),
        ("0.5.12", {"flags": "speculative-adaptive: true"}),
        ("0.5.11", {"flags": "speculative-adaptive: true, disable-overlap-schedule: true"}),
        ("0.5.23", {"flags": "speculative-use-rejection-sampling: true, "
                             "enable-deterministic-inference: true"}),
        ("0.5.23", {"flags": "pp-size: 2", "env": "SGLANG_ENABLE_PP_SPEC: 1",
                    "algorithm": "EAGLE"}),
        ("0.5.10", {"flags": "speculative-draft-attention-backend: fa4"}),
        ("0.5.17", {"flags": "attention-backend: torch_native, device: cpu"}),
        ("0.5.8", {"flags": "speculative-token-map: m", "algorithm": "EAGLE3", "tp": 2}),
        ("0.5.17", {"flags": "sampling-backend: pytorch"}),
        ("0.5.8", {"flags": "attention-backend: mine", "env": "SGLANG_PLUGINS: mine"}),
        ("0.5.24", {"flags": "attention-backend: a-new-one"}),
    ],
)  # fmt: skip
def test_what_a_release_allows_is_allowed(check: CheckSweep, release: str, given: dict) -> None:
    """A rule of one release that is applied to another keeps people from what works."""
    if "a-new-one" in given.get("flags", "") or "mine" in given.get("flags", ""):
        given = {**given, "flags": given["flags"] + ", speculative-draft-attention-backend: triton"}
    assert check(release, **given).loaded.space.points


def test_every_rule_has_a_case_above() -> None:
    """A rule without a test is a guess."""
    assert len(RULES) == 12


def test_points_that_break_a_rule_are_dropped_with_the_reason(check: CheckSweep) -> None:
    """Values that are legal elsewhere stay; the pair that is not is never launched."""
    flags = "flags: {attention-backend: [triton, trtllm_mha]}"
    checked = check("0.5.17", topk="[1, 2]", more=flags)
    space = checked.loaded.space
    assert all(
        point.eagle_topk == 1 or dict(point.flags)["attention-backend"] == "triton"
        for point in space.points
    )
    [reason] = [why for why in space.dropped if "has no trees" in why]
    gone = [point for point, why in space.excluded.items() if why == reason]
    assert len(gone) == space.dropped[reason] > 0
    values = {"num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 4, "draft_tp": "target"}
    assert space.at({**values, "flags.attention-backend": "trtllm_mha"}) == reason
    again = make_engine(checked.loaded.sweep, "0.5.17").check(checked.loaded)
    assert again.loaded.space.points == space.points


def test_num_steps_outside_the_adaptive_file_are_refused(check: CheckSweep, tmp_path: Path) -> None:
    """SGLang refuses it only after a minute of imports."""
    config = tmp_path / "adaptive.json"
    config.write_text('{"ema_alpha": 0.2, "1": {"candidate_steps": [0, 1, 3]}}')
    flags = f"speculative-adaptive: true, speculative-adaptive-config: {config}"
    with pytest.raises(UserError, match=r"space\.num_steps\[1\]: num_steps 2 is not among"):
        check("0.5.17", flags)
    assert check("0.5.17", flags, steps="[1, 3]").loaded.space.points


@pytest.mark.parametrize(("level", "size"), [(1, 4), (5, 8), (13, 16), (100, 104), (300, 304)])
def test_what_speculation_changes_by_itself_is_pinned_alike(
    check: CheckSweep, level: int, size: int
) -> None:
    """48 requests at a time against 2048: the comparison would measure the queue."""
    checked = check("0.5.17", level=level)
    sweep = checked.loaded.sweep
    for point in (None, checked.loaded.space.points[0]):
        flags = server_config(sweep, point).flags
        assert flags["max-running-requests"] == flags["cuda-graph-max-bs-decode"] == size
    assert any(f"--max-running-requests {size} for every server" in n for n in checked.notes)


def test_the_files_own_values_are_not_replaced(check: CheckSweep) -> None:
    """A pin is for what is left open, under whichever name."""
    flags = "max-running-requests: 9, cuda-graph-max-bs: 9"
    checked = check("0.5.17", flags)
    assert "cuda-graph-max-bs-decode" not in server_config(checked.loaded.sweep, None).flags
    assert server_config(checked.loaded.sweep, None).flags["max-running-requests"] == 9
    assert not [note for note in checked.notes if "for every server" in note]
    on_cpu = check("0.5.17", "device: cpu, attention-backend: torch_native")
    assert "cuda-graph-max-bs-decode" not in server_config(on_cpu.loaded.sweep, None).flags


@pytest.mark.parametrize(
    ("release", "given", "told"),
    [
        ("0.5.8", {}, ["attention-backend", "mem-fraction-static", "disable-overlap-schedule"]),
        ("0.5.12", {"topk": "[1, 2]"},
         ["attention-backend", "mem-fraction-static", "disable-overlap-schedule"]),
        ("0.5.12", {}, ["attention-backend", "mem-fraction-static"]),
        ("0.5.13", {"algorithm": "NGRAM"},
         ["attention-backend", "mem-fraction-static", "disable-overlap-schedule"]),
        ("0.5.23", {"algorithm": "NGRAM"}, ["attention-backend", "mem-fraction-static"]),
        ("0.5.8", {"flags": "attention-backend: triton, mem-fraction-static: 0.8, "
                            "disable-overlap-schedule: true"}, []),
    ],
)  # fmt: skip
def test_what_stays_different_is_told(
    check: CheckSweep, release: str, given: dict, told: list[str]
) -> None:
    """A speed-up that is half the attention back-end's should not be speculation's."""
    notes = [n for n in check(release, **given).notes if n.startswith("not pinned: ")]
    assert [note.split(": ")[1] for note in notes] == told


def test_a_release_in_the_file_is_checked_at_its_line(tmp_path: Path) -> None:
    """Behind docker or ssh the file is the only one who knows."""
    path = tmp_path / "s.yaml"
    text = SWEEP.replace("/no/such/python", "x, release: 0.5.7").replace("DRAFT", "draft: d, ")
    for word, filled in (("ALGORITHM", "EAGLE3"), ("TP", "1"), ("FLAGS", ""), ("ENV", "")):
        text = text.replace(word, filled)
    path.write_text(text.replace("SPACE", "num_steps: [1]").replace("LEVEL", "1"))
    loaded = load_sweep(path)
    with pytest.raises(UserError, match=r"s\.yaml:2: engine\.release: SGLang 0\.5\.7 is older"):
        make_engine(loaded.sweep).check(loaded)


def test_plans_for_0_5_8_and_0_5_23_differ_where_they_must() -> None:
    """The same file, two releases: only spellings and notes differ."""
    loaded = load_sweep(Path(__file__).parents[2] / "sweeps/h200_llama8b_eagle3.yaml")
    old, new = (make_plan(loaded, release=release) for release in ("0.5.8", "0.5.23"))
    assert [point for point, _ in old.commands] == [point for point, _ in new.commands]
    for before, after in zip(
        (old.baseline, *(command for _, command in old.commands)),
        (new.baseline, *(command for _, command in new.commands)),
        strict=True,
    ):
        assert "--cuda-graph-max-bs" in before.argv
        assert "--cuda-graph-max-bs-decode" in after.argv
        assert "--cuda-graph-backend-prefill" in after.argv
        renamed = [w.replace("max-bs", "max-bs-decode") for w in before.argv]
        rest = [w for w in after.argv if w not in ("--cuda-graph-backend-prefill", "disabled")]
        assert sorted(renamed) == sorted(rest)
    assert any("overlap scheduler" in note for note in old.notes)
    assert not any("overlap scheduler" in note for note in new.notes)
