"""Facts about the machine, so that a number can be read next year."""

import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

from tuner import __version__
from tuner.core.errors import UserError
from tuner.core.files import read_json
from tuner.core.secrets import hidden_word

_SHOWN = re.compile(r"^(NCCL_|SGLANG_|CUDA_VISIBLE_DEVICES$)")


Facts = dict[str, Any]
"""What `machine_facts` tells of whatever measures."""


def machine_facts() -> Facts:
    """What machine.json holds. `gpus` is [] where there is no NVIDIA driver."""
    driver, cuda, gpus = _gpus()
    return {
        "hostname": socket.gethostname(),
        "os": f"{_os_name()}, {platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus,
        "driver": driver,
        "cuda": cuda,
        "specbench": __version__,
        "python": platform.python_version(),
        "env": inherited_variables(os.environ),
    }


def read_machine(file: Path) -> dict[str, Any]:
    """What `machine_facts` wrote to `file`. Raises UserError where that is gone or broken."""
    try:
        facts = read_json(file)
    except OSError as error:
        raise UserError(f"{error.strerror}, restore it", file) from error
    except (ValueError, RecursionError) as error:
        raise UserError("this is not JSON, restore it", file) from error
    if not isinstance(facts, dict):
        raise UserError("this is no JSON object, restore it", file)
    gpus, env = facts.get("gpus", []), facts.get("env", {})
    if not isinstance(gpus, list) or not all(isinstance(gpu, dict) for gpu in gpus):
        raise UserError("gpus is no list of objects, restore it", file)
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise UserError("env is no object of texts, restore it", file)
    return facts


def inherited_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server inherits and that change its speed; secrets are masked."""
    return {
        name: hidden_word(value, name)
        for name, value in sorted(environ.items())
        if _SHOWN.search(name)
    }


def _gpus() -> tuple[str | None, str | None, list[dict[str, Any]]]:
    """Driver version, the CUDA version that the driver serves, and each GPU's name and memory."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, None, []
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
            name = _text(pynvml.nvmlDeviceGetName(handle))
            gpus.append({"name": name, "memory_gib": round(memory / 2**30, 1)})
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return driver, f"{version // 1000}.{version % 1000 // 10}", gpus
    except pynvml.NVMLError:  # a driver without the right to see its devices
        return None, None, []
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
