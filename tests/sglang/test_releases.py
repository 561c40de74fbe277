"""Which release a version is, and what the table says of it."""

import json
import sys
from pathlib import Path

import pytest

from tuner.core.errors import UserError
from tuner.loadgen.stream_parser import TokenStream
from tuner.sglang.flag_catalogue import releases
from tuner.sglang.flag_spelling import Spelled, spell
from tuner.sglang.interpreter import flags_of_help, installed_version
from tuner.sglang.releases import TABLE, parse_version, version_key
from tuner.simulator import arguments
from tuner.simulator.performance import Speculation
from tuner.simulator.protocol import Limits, Wire, new_request
from tuner.simulator.scheduler import SpecTotals


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.5.8", "0.5.8"),
        ("v0.5.11", "0.5.11"),
        ("0.5.12.post1", "0.5.12.post1"),
        ("0.5.17+cu129", "0.5.17"),
    ],
)
def test_a_release_is_itself_without_a_warning(version: str, known: str) -> None:
    """A warning on every run is one that nobody reads."""
    found = parse_version(version)
    assert (found.known, found.warning) == (known, None)


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.5.9.post1.dev3+g1a2b", "0.5.9"),
        ("0.5.10rc1", "0.5.10"),
        ("0.5.13.post2.dev1+gabc.d20260101", "0.5.13.post1"),
        ("0.5.24", releases()[-1]),
        ("1.0.0", releases()[-1]),
        ("0.5.24.dev4+g12", releases()[-1]),
        ("0.0.0.dev1+g1a2b", releases()[-1]),
    ],
)
def test_a_checkout_or_an_unknown_version_is_taken_for_its_row_with_a_warning(
    version: str, known: str
) -> None:
    """Refusing a source checkout would leave its user with nothing."""
    found = parse_version(version)
    assert found.known == known
    assert found.warning is not None
    assert version in found.warning


@pytest.mark.parametrize(("version", "reason"), [("0.5.7", "older than 0.5.8"), ("new", "is not")])
def test_an_older_version_and_no_version_are_refused(version: str, reason: str) -> None:
    """0.5.7 would start, and its counts would be read as something else."""
    with pytest.raises(UserError, match=reason):
        parse_version(version)


@pytest.mark.parametrize("release", releases())
def test_the_table_names_fields_that_the_releases_source_has(release: str) -> None:
    """A field that is spelled wrong reads as `not measured` for the whole release."""
    found = parse_version(release)
    for topic in ("correct_drafts", "proposed_drafts", "histogram"):
        field = found.text(topic)  # type: ignore[arg-type]
        assert field is None or field in found.meta_info
    if found.text("histogram") is None:
        assert not [field for field in found.meta_info if "histogram" in field]
    assert (found.text("plugins") is not None) == found.at_least("0.5.11")


def test_rows_are_in_order_and_have_sources() -> None:
    """A row out of order would hide the one before it."""
    for rows in TABLE.values():
        assert rows[0].since == "0.5.8"
        keys = [version_key(row.since) for row in rows]
        assert keys == sorted(set(keys))
        assert all(row.source for row in rows)


@pytest.mark.parametrize(
    ("release", "name", "value", "spelled"),
    [
        ("0.5.8", "cuda-graph-max-bs-decode", 4, ("cuda-graph-max-bs", 4)),
        ("0.5.23", "cuda-graph-max-bs", 4, ("cuda-graph-max-bs-decode", 4)),
        ("0.5.17", "cuda-graph-max-bs", 4, ("cuda-graph-max-bs", 4)),
        ("0.5.8", "cuda-graph-backend-prefill", "disabled", (None, None)),
        (
            "0.5.12",
            "cuda-graph-backend-prefill",
            "disabled",
            ("disable-piecewise-cuda-graph", True),
        ),
        (
            "0.5.23",
            "disable-piecewise-cuda-graph",
            True,
            ("cuda-graph-backend-prefill", "disabled"),
        ),
        ("0.5.9", "disable-prefill-cuda-graph", True, (None, None)),
        ("0.5.9", "cuda-graph-backend-decode", "disabled", ("disable-cuda-graph", True)),
        ("0.5.23", "cuda-graph-bs", [1, 2], ("cuda-graph-bs-decode", [1, 2])),
    ],
)
def test_a_flag_is_put_into_the_releases_spelling(
    release: str, name: str, value: object, spelled: tuple[object, object]
) -> None:
    """--cuda-graph-max-bs ends 0.5.20 and later with exit status 2, after the user has left."""
    assert spell(name, value, parse_version(release)) == Spelled(*spelled)  # type: ignore[arg-type]


def test_what_a_release_has_no_word_for_is_not_translated() -> None:
    """Adaptive speculation on 0.5.8 is a mistake, not a spelling."""
    assert spell("speculative-adaptive", True, parse_version("0.5.8")) is None
    assert spell("cuda-graph-backend-prefill", "full", parse_version("0.5.8")) is None


def test_the_version_is_read_without_importing_sglang(tmp_path: Path) -> None:
    """Importing takes half a minute and opens the GPU; a checkout has no metadata."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    env = {"PYTHONPATH": str(tmp_path)}
    assert installed_version(sys.executable, env) is None
    (package / "version.py").write_text('__version__ = "0.5.9.post1.dev3+g1a2b"\n')
    assert installed_version(sys.executable, env) == "0.5.9.post1.dev3+g1a2b"
    metadata = tmp_path / "sglang-0.5.11.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.11\n")
    assert installed_version(sys.executable, env) == "0.5.11"
    assert installed_version("/no/such/python") is None


def test_an_unknown_release_is_asked_for_its_flags(tmp_path: Path) -> None:
    """A newer release's flag would be refused for not being in the table."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--model-path')\n"
        "p.add_argument('--brand-new', help='see --not-a-real-one')\np.parse_args()\n"
    )
    found = flags_of_help(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert found is not None
    assert {"model-path", "brand-new"} <= found
    assert flags_of_help(sys.executable) is None


@pytest.mark.parametrize(
    ("version", "words", "message"),
    [
        ("0.5.20", ("--cuda-graph-max-bs", "4"), "ambiguous option: --cuda-graph-max-bs"),
        ("0.5.10", ("--speculative-adaptive",), "unrecognized arguments: --speculative-adaptive"),
        ("0.5.7", (), "older than 0.5.8"),
    ],
)
def test_the_simulated_server_refuses_what_its_release_refuses(
    version: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rehearsal that takes any flag proves nothing about the release."""
    with pytest.raises(SystemExit) as ended:
        arguments.parse(["--sglang-version", version, *words], {})
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("release", releases())
def test_simulated_server_defaults_are_the_releases(release: str) -> None:
    """Defaults in a second list would be those of an old release one day."""
    args = arguments.parse(["--sglang-version", release], {}).server_args
    tables = dict(parse_version(release).arguments)
    for name in ("model-path", "random-seed", "tokenizer-path", "served-model-name", "tp-size"):
        del tables[name]
    tables = {table.name: table for table in tables.values() if table.name in tables}
    assert len(tables) > 300
    for name, table in tables.items():
        default = bool(table.default) if table.kind == "switch" else table.default
        assert args[name.replace("-", "_")] == default, name


@pytest.mark.parametrize(
    ("word", "attribute", "value"),
    [
        ("--mem-frac=0.5", "mem_fraction_static", 0.5),
        ("--no-dllm-fdfo", "dllm_fdfo", False),
        ("--dllm-fdfo", "dllm_fdfo", True),
        ("--cuda-graph-max-bs=8", "cuda_graph_max_bs_decode", 8),
        ("--max-prefill-tokens=64", "max_prefill_tokens", 64),
        ("--moe-runner-backend=triton", "moe_runner_backend", "triton"),
        ("--lora-paths=a", "lora_paths", ["a"]),
        ("--of-another-release=3", "of_another_release", 3),
    ],
)
def test_simulated_server_reads_flags_as_sglang(word: str, attribute: str, value: object) -> None:
    """Abbreviations, negations and deprecated spellings reach the argument that they stand for."""
    assert arguments.parse([word], {}).server_args[attribute] == value


@pytest.mark.parametrize("release", releases())
def test_the_client_reads_the_same_counts_from_every_release(release: str) -> None:
    """The same behaviour must give the same accept length, whatever its fields are called."""
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d"]
    words += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    words += ["--speculative-num-draft-tokens", "4", "--sglang-version", release]
    parsed = arguments.parse(words, {})
    request = new_request([1, 2, 3], Limits(8, True))
    request.verify_ct, request.correct_drafts, request.histogram = 5, 4, [2, 2, 1, 0]
    meta = Wire(request, parsed.performance.speculation, parsed.release).meta_info()
    assert {name for name in meta if name.startswith("spec_")} <= set(parsed.release.meta_info)
    counted = TokenStream()
    counted.feed(f"data: {json.dumps({'meta_info': meta})}\n\n".encode(), 0.0)
    spec = counted.spec
    assert spec is not None
    assert (spec.verify_ct, spec.correct_drafts, spec.proposed_drafts) == (5, 4, 15)
    assert spec.histogram == (None if release.startswith("0.5.8") else (2, 2, 1, 0))


def test_the_logged_rate_is_the_releases_own() -> None:
    """Up to 0.5.10 a server that accepts nothing logs a rate of a quarter at three steps."""
    totals, chain = SpecTotals(verifies=10, correct=0), Speculation("EAGLE3", 3, 1, 4, 1)
    assert totals.accept_rate(chain, parse_version("0.5.10")) == 0.25
    assert totals.accept_rate(chain, parse_version("0.5.11")) == 0.0
