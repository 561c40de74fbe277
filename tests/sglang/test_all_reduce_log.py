"""What carried a server's all-reduces, by its log: NCCL settings mean something only with NCCL."""

from pathlib import Path

import pytest

from tuner.sglang.log_parser import all_reduce_backend, nccl_defaults

STAMP = "[2026-01-02 03:04:05 TP0] "
ARGUMENTS = "[2026-01-02 03:04:04] server_args=ServerArgs(model_path='m', device='cuda', "
SET_UP = f"{STAMP}All Reduce config: symmetric_memory = 80.01 MB, multicast = False\n"
OLDER = f"{STAMP}Registering 66 cuda graph addresses\n"
FAILED = f"{STAMP}Setup Custom allreduce failed with CUDA error. To silence this warning, ...\n"
PCIE = f"{STAMP}{{}} is disabled because it's not supported on more than two PCIe-only GPUs.\n"
DETERMINISTIC = (
    f"{STAMP}NCCL_ALGO is set to 'allreduce:tree' and custom all reduce is disabled for "
    "deterministic inference when TP size > 1.\n"
)
IPC = f"{STAMP}FlashInfer PCIe-IPC workspace built (world=8, max_numel=524288, hidden=6144)\n"


def log(rest: str, **arguments: object) -> str:
    given = {"tp_size": 2, "disable_custom_all_reduce": False, **arguments}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"{ARGUMENTS}{words})\n{rest}"


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        (log(SET_UP), "custom all-reduce"),
        (log(OLDER), "custom all-reduce"),
        (log(PCIE.format("CustomAllReduceV2") + OLDER), "custom all-reduce"),
        (log("", disable_custom_all_reduce=True), "NCCL"),
        (log(FAILED), "NCCL"),
        (log(PCIE.format("CustomAllreduce"), tp_size=8), "NCCL"),
        (log(PCIE.format("Custom allreduce"), tp_size=8), "NCCL"),
        (log(DETERMINISTIC), "NCCL"),
        (log(SET_UP, enable_symm_mem=True), "NCCL with symmetric memory"),
        (log(IPC, disable_custom_all_reduce=True), "FlashInfer PCIe-IPC all-reduce"),
        (log(SET_UP, tp_size=1), None),
        (log(""), None),
        (log(SET_UP, enable_mscclpp=True), None),
        (log("", disable_custom_all_reduce=True).replace("'cuda'", "'cpu'"), None),
        (log(SET_UP, nnodes=1), "custom all-reduce"),
        (log(SET_UP, nnodes=2), None),
        (SET_UP, None),
        ("", None),
    ],
)
def test_the_log_says_it_or_nothing_is_said(text: str, backend: str | None) -> None:
    assert all_reduce_backend(text) == backend


def test_the_logs_of_real_servers() -> None:
    """2x H200, SGLang 0.5.17, with and without --disable-custom-all-reduce."""

    def backends(run: str) -> set[str | None]:
        logs = sorted(Path("results", run).glob("*/logs/*.log"))
        return {all_reduce_backend(each.read_text(errors="replace")) for each in logs}

    assert backends("h200_llama8b_eagle3") == {"custom all-reduce"}
    assert backends("h200_draft_tp_pcie") == {"NCCL"}
    assert backends("smollm2_eagle3") == {None}  # one GPU


def test_nvls_stays_off_unless_it_is_asked_for() -> None:
    """As SGLang leaves it; on some machines it hangs."""
    assert nccl_defaults({}, {}) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
    }
    inherited = {"NCCL_NVLS_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}
    assert nccl_defaults({}, inherited) == {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    assert nccl_defaults({"enable-nccl-nvls": True}, {})["NCCL_NVLS_ENABLE"] == "1"
