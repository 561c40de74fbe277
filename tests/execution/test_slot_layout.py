"""How GPUs are split, and what is refused before anything is launched."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.server.fake_nvml import FakeNvml
from tests.sweeps import tiny_runner
from tuner.config.loader import load_sweep
from tuner.core.errors import UserError
from tuner.execution.launch import portable
from tuner.execution.slots import Slot, lay_out_slots, ranges
from tuner.metrics.statistics import Interval
from tuner.runs.run import Run
from tuner.runs.slot_interference import beside, slowed
from tuner.server import gpu, ports

SWEEP = """\
name: split
engine: {kind: sglang}
model: {target: a/b, draft: c/d, algorithm: EAGLE3, tp: 2}
slots: auto
space: {num_steps: [1, 2]}
"""


def split(folder: Path, *pairs: tuple[str, str], **environ: str) -> tuple[Slot, ...]:
    text = SWEEP
    for before, after in pairs:
        text = text.replace(before, after)
    path = folder / "split.yaml"
    path.write_text(text)
    return lay_out_slots(load_sweep(path), environ)


class OnNodes(FakeNvml):
    """GPUs with a PCI address."""

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{handle + 16:02X}:00.0".encode())

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
        raise self.NVMLError(name)  # as of a MIG slice


def test_the_gpus_that_are_left_visible_are_split_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs that somebody else was given are not touched, whatever they are called."""
    monkeypatch.setitem(sys.modules, "pynvml", OnNodes(8))
    found = split(tmp_path)
    assert [each.gpus for each in found] == [("0", "1"), ("2", "3"), ("4", "5"), ("6", "7")]
    found = split(tmp_path, CUDA_VISIBLE_DEVICES="7,5,3,1,0")
    assert [each.gpus for each in found] == [("7", "5"), ("3", "1")]
    found = split(tmp_path, ("tp: 2", "tp: 1"), CUDA_VISIBLE_DEVICES="MIG-b, GPU-a,-1,3")
    assert [each.gpus for each in found] == [("MIG-b",), ("GPU-a",)]
    found = split(tmp_path, ("slots: auto", "slots: 1"))
    assert found == (Slot(0, None),)
    found = split(tmp_path, ("slots: auto", "server: {flags: {pp-size: 2}}\nslots: auto"))
    assert [each.gpus for each in found] == [("0", "1", "2", "3"), ("4", "5", "6", "7")]


REFUSED = [
    (("auto", "3"), "0,1,2,3", "3 servers need 6 GPUs (2 each), 4 are seen: write slots: 2"),
    (("auto", "2"), "0", "they are too few for one"),
    (("sglang", "endpoint, url: 'http://127.0.0.1:1'"), "0", "one server that runs already"),
    (("sglang", "sglang, command: [docker, run]"), "0", "docker may run servers elsewhere"),
    (("space: {", "space: {env: {CUDA_VISIBLE_DEVICES: ['0', '1']}, "), "0", "each slot sets CUDA"),
    (("auto", "auto\nserver: {flags: {base-gpu-id: 1}}"), "0", "--base-gpu-id places servers"),
    (("auto", "auto\nserver: {flags: {device: cpu}}"), "0", "--device places servers"),
]


@pytest.mark.parametrize(("pair", "visible", "says"), REFUSED)
def test_what_cannot_stand_side_by_side_is_refused_at_its_line(
    tmp_path: Path, pair: tuple[str, str], visible: str, says: str
) -> None:
    with pytest.raises(UserError) as caught:
        split(tmp_path, pair, CUDA_VISIBLE_DEVICES=visible)
    assert caught.value.where == f"{tmp_path / 'split.yaml'}:4"
    assert says in caught.value.message


def test_without_nvml_and_names_the_gpus_are_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml(4)
    fake.broken.add("nvmlInit")
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with pytest.raises(UserError, match="the GPUs here are not known"):
        split(tmp_path)


def test_the_node_of_a_gpu_is_its_pci_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server on the other socket's CPUs is measured slower than it is."""
    monkeypatch.setitem(sys.modules, "pynvml", OnNodes(4))
    for number, node in enumerate(("0", "0", "1", "-1")):
        device = tmp_path / f"0000:{number + 16:02x}:00.0"
        device.mkdir()
        (device / "numa_node").write_text(f"{node}\n")
    assert gpu.numa_nodes({}, tmp_path) == {"0": 0, "1": 0, "2": 1}
    nodes = {"0": 0, "1": 0, "2": 1}
    monkeypatch.setattr("tuner.execution.slots.numa_nodes", lambda environment: nodes)
    monkeypatch.setattr("tuner.execution.slots.numa_cpus", lambda node: {0, 1, 2, 3, 99_999})
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 3, 4})
    first, second = split(tmp_path)
    assert (first.numa, first.cpus) == (0, {0, 1, 3})
    assert (second.numa, second.cpus) == (None, None)  # its GPUs have none in common
    line = first.line(alone=False)
    assert (line.name, line.gpus, line.cpus) == ("slot 0", ["0", "1"], "0-1,3")
    assert ranges(frozenset({5})) == "5"


def test_no_two_launches_are_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice and the bind lie minutes of loading."""
    drawn = iter([20001, 20001, 20002, 20001])
    monkeypatch.setattr(ports, "free_port", lambda but_not=(): next(drawn))
    one, other = ports.PortClaims(), ports.PortClaims()
    assert one.claim() == 20001
    assert other.claim() == 20002
    one.release()
    assert other.claim() == 20001
    other.release()


def test_a_speed_up_beside_others_is_held_against_the_baseline_there() -> None:
    found = beside(Interval(1.14, 1.10, 1.18), Interval(0.95, 0.94, 0.96))
    assert found is not None and found.low is not None and found.high is not None
    assert found.value == pytest.approx(1.2)
    assert found.high / found.low > 1.18 / 1.10  # what is not known of the one is not of the other
    assert slowed(Interval(0.95, 0.94, 0.96)) and not slowed(Interval(0.96, 0.94, 0.98))


def test_portable_context_has_no_ledger(tmp_path: Path) -> None:
    assert not isinstance(portable(tiny_runner(tmp_path)).run, Run)
