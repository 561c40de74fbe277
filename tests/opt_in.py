"""Folders of tests that launch real servers and take minutes: skipped unless asked for."""

import os
from pathlib import Path

import pytest


def mark(items: list[pytest.Item], folder: Path, variable: str, command: str) -> None:
    """Mark the tests of `folder`; without `variable` they are skipped, and `command` named."""
    for item in items:
        if not item.path.is_relative_to(folder):
            continue
        item.add_marker(pytest.mark.sglang)
        item.add_marker(pytest.mark.timeout(900))
        if variable not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"{command} runs it"))
