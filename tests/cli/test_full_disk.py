"""A disk that is too small, or becomes read-only: nothing is learned of it, and nothing lost.

The disk is a tmpfs in a mount namespace; where neither is allowed the tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_run
from tests.sweeps import tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.core.errors import UserError
from tuner.core.files import SUFFIX, replacing, write_text
from tuner.report.report import write_report
from tuner.runs import run as ledger_run
from tuner.runs.run import Run

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
SCRIPT = """
set -u
disk=$1 size=$2 sweep=$3 specbench="$4 -m tuner"
mount -t tmpfs -o "size=$size" tmpfs "$disk"
$specbench sweep "$sweep" --out "$disk/out" >"$disk.said" 2>"$disk.told"
echo $? >"$disk.code"
run=$(ls -d "$disk"/out/*)
cp "$run/trials.jsonl" "$disk.before"
ls -R "$run" >"$disk.files"
mount -o remount,ro "$disk"
$specbench sweep --resume "$run" >"$disk.said" 2>"$disk.readonly"
echo $? >>"$disk.code"
mount -o remount,rw,size=64M "$disk"
$specbench sweep --resume "$run" --json >"$disk.json" 2>"$disk.again"
echo $? >>"$disk.code"
cp "$run/trials.jsonl" "$disk.after"
"""


def is_allowed(disk: Path) -> bool:
    words = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(disk)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("size", ["28k", "100k", "180k"])
def test_a_full_disk_costs_no_point_its_chance(tmp_path: Path, size: str) -> None:
    """Servers that cannot write their logs die; that is no crash of theirs to be learned from."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not is_allowed(disk):
        pytest.skip("no mount namespaces here")
    tiny_sweep(tmp_path, search="trials: 2")
    words = ["bash", "-c", SCRIPT, "bash", disk, size, tmp_path / "tiny.yaml", sys.executable]
    subprocess.run([*NAMESPACE, *map(str, words)], check=True, timeout=110)

    def said(what: str) -> str:
        return disk.with_suffix(f".{what}").read_text()

    assert said("code").split()[1:] == ["2", "0"]
    assert said("code").split()[0] in ("1", "2")
    for what in ("told", "readonly", "again"):
        assert "Traceback" not in said(what), said(what)
    assert "No space left on device" in said("told").splitlines()[-1]
    assert "Read-only file system" in said("readonly").splitlines()[-1]
    assert ".partial" not in said("files")
    before, after = said("before"), said("after")
    assert after.startswith(before[: before.rfind("\n") + 1])
    records = [json.loads(line) for line in after.splitlines()]
    done = [(each["role"], each["outcome"]) for each in records if each["role"] != "plain"]
    assert done == [
        ("baseline", "ok"),
        ("candidate", "ok"),
        ("candidate", "ok"),
    ]
    assert json.loads(said("json"))["trials"] == 2


def test_a_file_that_cannot_be_written_whole_is_as_it_was(tmp_path: Path) -> None:
    """Yesterday's report is worth more than half of today's."""
    file = tmp_path / "report.md"
    write_text(file, "yesterday")
    with pytest.raises(OSError, match="space"), replacing(file) as partial:
        partial.write_text("half of tod")
        raise OSError(28, "No space left on device")
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]
    assert file.read_text() == "yesterday"


def test_a_file_that_cannot_be_written_is_told_by_its_own_name(tmp_path: Path) -> None:
    """`best.yaml.4711.partial: Permission denied` sends nobody to the right place."""
    with pytest.raises(OSError) as caught:
        write_text(tmp_path / "none" / "best.yaml", "x")
    assert caught.value.filename == str(tmp_path / "none" / "best.yaml")


def test_files_are_on_the_disk_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost node would else leave an empty file in the place of yesterday's."""
    file, seen = tmp_path / "run.json", []
    file.write_text("yesterday")

    def fsync(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve(), file.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(file, "today")
    (partial, then), (folder, now) = seen
    assert partial.parent == folder == tmp_path
    assert (then, now) == ("yesterday", "today")


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A run folder that somebody sent may hold links to one's own files."""
    own = tmp_path / "own"
    own.write_text("mine")
    for name in ("report.md", f"report.md.{os.getpid()}{SUFFIX}"):
        (tmp_path / name).symlink_to(own)
    write_text(tmp_path / "report.md", "today")
    assert own.read_text() == "mine"
    assert not (tmp_path / "report.md").is_symlink()


def test_every_file_of_a_report_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is opened for writing is empty already when the disk turns out to be full."""
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 100.0)])
    write_report(summarise_run(run))
    inodes = {file: file.stat().st_ino for file in run.results}
    kept = [file.open("rb") for file in inodes]  # so that no inode is used again
    write_report(summarise_run(run))
    assert [file.name for file in run.results if file.stat().st_ino == inodes[file]] == []
    for each in kept:
        each.close()


def test_a_stranger_s_run_folder_makes_nobody_read_or_write_elsewhere(tmp_path: Path) -> None:
    """`specbench report` and `compare-report` are run on folders out of bug reports."""
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 100.0)])
    record = run.records()[-1]
    assert record.samples is not None
    samples, elsewhere = run.path / record.samples, tmp_path / "elsewhere"
    elsewhere.mkdir()
    taken = samples.rename(elsewhere / samples.name)
    samples.symlink_to(taken)
    with pytest.raises(UserError, match=f"{samples.name}: this leads out of the run folder"):
        write_report(summarise_run(Run.open(run.path)))
    samples.unlink()
    taken.rename(samples)
    run.figures.symlink_to(elsewhere)
    with pytest.raises(UserError, match="figures: this is a link"):
        write_report(summarise_run(Run.open(run.path)))
    assert list(elsewhere.iterdir()) == []
    run.figures.unlink()
    lines = run.trials_file.read_text().splitlines()
    for path in ("/etc/passwd", "samples/../../elsewhere/x.gz"):
        line = json.loads(lines[-1])
        parts = {"samples": path, "held_out": {"prompts": 1, "metrics": {}, "samples": path}}
        for name, part in parts.items():
            run.trials_file.write_text("\n".join([*lines[:-1], json.dumps({**line, name: part})]))
            with run.trials_file.open("a") as file:
                file.write("\n")
            with pytest.raises(UserError, match=rf"{name}.*: this is no path in the run folder"):
                Run.open(run.path).records()


def test_a_line_of_the_ledger_is_looked_over_for_secrets_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every known value in every escape is looked for in every byte: that costs, once is enough."""
    run = make_run(tmp_path, [Trial(None, 90.0)])
    looks: list[str] = []

    def hidden(text: str) -> str:
        looks.append(text)
        return text.replace("s3cret-value", "${KEY}")

    monkeypatch.setattr(ledger_run, "hidden_values", hidden)
    first = run.records()[-1].model_copy(update={"trial": 7, "message": "s3cret-value"})
    second = first.model_copy(update={"trial": 8})
    with run.locked():
        run.append(first, second)
    assert len(looks) == 2  # one for each line
    assert [each.message for each in run.records()[-2:]] == ["${KEY}", "${KEY}"]
