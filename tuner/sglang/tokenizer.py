"""Prompts to input ids, once per model and set of prompts.

The work is done by tokenizer_child.py under the server's interpreter, and kept under
${XDG_CACHE_HOME:-~/.cache}/specbench/tokens/.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config.prompts import Prompt
from tuner.config.schema import ModelSpec, ServerSpec
from tuner.core.files import read_json, write_text
from tuner.metrics.samples import Request
from tuner.server.base import Tokenised
from tuner.sglang.models import Hub, Model, local
from tuner.sglang.server_settings import REVISION_FLAGS

CHILD = Path(__file__).with_name("tokenizer_child.py")
CHILD_LIMIT_S = 600.0
"""A tokenizer may have to be downloaded."""
_CACHE_FORMAT = 2
_TOKENIZER_FILES = ("*token*", "*.jinja", "vocab*", "merges.txt", "*.model")
_SMALL_VOCABULARY = 256
_SHORT_CONTEXT = 2048


@dataclass(frozen=True)
class Tokeniser:
    """What decides how a model's prompts become ids."""

    python: str
    model: ModelSpec
    server: ServerSpec

    def __call__(self, prompts: Sequence[Prompt]) -> Tokenised:
        """Requests in the order of `prompts`; text where there is no tokenizer."""
        answer = self._cached(prompts)
        if "error" not in answer:
            why = answer["no_template"]
            return Tokenised(
                tuple(
                    Request(prompt.id, prompt.kind, None, tuple(ids), prompt.follows)
                    for prompt, ids in zip(prompts, answer["input_ids"], strict=True)
                ),
                f"prompts are raw text: {why}" if why else None,
            )
        if self.server.flag("skip-tokenizer-init"):
            return self._random(prompts)
        return Tokenised.as_text(prompts, f"prompts are raw text: no tokenizer ({answer['error']})")

    @property
    def _tokenizer(self) -> str:
        return str(self.server.flag("tokenizer-path") or self.model.target)

    @property
    def _revision(self) -> str | None:
        """The branch, tag or commit that the servers read; None: whatever `main` is.

        SGLang looks for `--tokenizer-path` at it too (`Launches.other_tokenizer`).
        """
        value = self.server.flag(REVISION_FLAGS["target"])
        return None if value is None else str(value)

    def _here(self, name: str) -> Model:
        """A name as SGLang would read it: a folder, or of the hub's cache."""
        return local("target", name, Hub.of(self._environment), self._revision or "main")

    @property
    def _environment(self) -> dict[str, str]:
        return self.server.environment(os.environ)

    def _order(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        return {
            "tokenizer": self._tokenizer,
            "revision": self._revision,
            "trust_remote_code": self.server.flag("trust-remote-code") is True,
            "conversations": [prompt.messages for prompt in prompts],
        }

    def _cached(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        order = self._order(prompts)
        folder = Path(self._tokenizer)
        if folder.is_dir() and not _file_times(folder):
            return {"error": f"no tokenizer files in {folder}"}
        # A branch moves on: what was kept is of the commit that it was.
        state = [_CACHE_FORMAT, order, _file_times(folder), self._here(self._tokenizer).commit]
        key = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
        path = _cache_folder() / f"{key[:32]}.json"
        try:
            kept = read_json(path)
        except (OSError, ValueError, RecursionError):
            kept = None
        if _is_answer(kept, len(prompts)):
            answer: dict[str, Any] = kept
            return answer
        answer = self._ask_child(order)
        if not _is_answer(answer, len(prompts)):
            return {"error": answer.get("error", "tokenizer_child answered nonsense")}
        _keep(path, answer)
        return answer

    def _ask_child(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [self.python, str(CHILD)],
                input=json.dumps(order),
                capture_output=True,
                text=True,
                timeout=CHILD_LIMIT_S,
                env=self._environment,
                check=False,
            )
            answer = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
        except OSError as error:
            return {"error": f"cannot run {self.python}: {error.strerror}"}
        except subprocess.TimeoutExpired:
            return {"error": f"not loaded after {CHILD_LIMIT_S:g} s"}
        except ValueError:
            last = done.stderr.strip().rsplit("\n", 1)[-1]
            return {"error": f"exit status {done.returncode}: {last[:200]}"}
        return answer if isinstance(answer, dict) else {}

    def _random(self, prompts: Sequence[Prompt]) -> Tokenised:
        """Ids for a server that takes nothing else: as many as the text has, by rule of thumb."""
        vocabulary, context = _sizes(self._here(self.model.target).folder)
        requests = []
        for prompt in prompts:
            draw = random.Random(f"{prompt.id} {prompt.text}")
            count = min(max(len(prompt.text) // 4, 4), context // 4)
            ids = tuple(draw.randrange(vocabulary) for _ in range(count))
            requests.append(Request(prompt.id, prompt.kind, None, ids, prompt.follows))
        return Tokenised(tuple(requests), "random-token prompts: acceptance means nothing")


def default_python(python: str | None) -> str:
    """`engine.python`, or the interpreter that runs specbench."""
    return python if python is not None else sys.executable


def _is_answer(answer: Any, count: int) -> bool:
    return (
        isinstance(answer, dict)
        and "no_template" in answer
        and isinstance(answer.get("input_ids"), list)
        and len(answer["input_ids"]) == count
    )


def _keep(path: Path, answer: dict[str, Any]) -> None:
    """Best effort: a cache that cannot be written costs time, not the run."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(answer))


def _cache_folder() -> Path:
    # Not Path.home, which raises where there is neither HOME nor an entry for the user.
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(base) / "specbench" / "tokens"


def _file_times(folder: Path) -> list[list[Any]]:
    if not folder.is_dir():
        return []
    files = {file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)}
    return [[file.name, file.stat().st_mtime_ns] for file in sorted(files)]


def _sizes(folder: Path | None) -> tuple[int, int]:
    """Vocabulary and context length by config.json, cautious guesses without one."""
    if folder is None:
        return _SMALL_VOCABULARY, _SHORT_CONTEXT
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        inner = config.get("text_config", config)
        vocabulary = int(inner["vocab_size"])
        context = int(inner.get("max_position_embeddings", _SHORT_CONTEXT))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _SMALL_VOCABULARY, _SHORT_CONTEXT
    return max(vocabulary, 1), max(context, 16)
