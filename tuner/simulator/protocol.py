"""Parse requests, and write answers in the fields of the release that is played."""

import json
import random
import re
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.sglang.releases import Release
from tuner.simulator.performance import Speculation
from tuner.simulator.scheduler import RunningRequest

LONG_PROMPT_CHARACTERS = 1500
_CODE = re.compile(
    r"```|\bdef |#include|\bSELECT\b|\b(Python|TypeScript|JavaScript|C\+\+|Rust|SQL|bash)(?!\w)"
    r"|\bin (C|Go|Java)\b"
)
_MATH = re.compile(
    r"\b(prove|probability|how many ways|integral|differentiate|equation|irrational|real x|solve"
    r"|compute|derive|digits)\b",
    re.IGNORECASE,
)


class BadRequestError(Exception):
    """SGLang would refuse the body of the request: 400."""


def guess_kind(text: str) -> str:
    """Return a prompt's kind by rule: code, summarise, math or else chat.

    code has a fence, `def ` or the name of a programming language; summarise is longer than 1500
    characters; math has a word such as `prove`, or digits in at least 2 % of its characters.
    Token ids carry no text: those prompts are chat.
    """
    if _CODE.search(text):
        return "code"
    if len(text) > LONG_PROMPT_CHARACTERS:
        return "summarise"
    digits = sum(character.isdigit() for character in text)
    is_math = digits >= max(3, 0.02 * len(text)) or _MATH.search(text) is not None
    return "math" if is_math else "chat"


@dataclass(frozen=True)
class Limits:
    """Settings of one request, from sampling_params or an OpenAI body."""

    max_new_tokens: int
    ignore_eos: bool

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> "Limits":
        """Parse sampling_params of /generate. Raises BadRequestError."""
        count = params.get("max_new_tokens", 128)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise BadRequestError(f"max_new_tokens must be at least 1, got {count!r}.")
        temperature = params.get("temperature", 1.0)
        if not isinstance(temperature, int | float) or temperature < 0:
            raise BadRequestError(f"temperature must be non-negative, got {temperature!r}.")
        return cls(count, bool(params.get("ignore_eos", False)))


def new_request(prompt: str | list[int], limits: Limits, rid: str | None = None) -> RunningRequest:
    """Return a request for the scheduler. Without ignore_eos the prompt decides its length."""
    if isinstance(prompt, str):
        tokens, kind, raw = len(prompt) // 4 + 1, guess_kind(prompt), prompt.encode()
    else:
        tokens, kind, raw = len(prompt), "chat", json.dumps(prompt).encode()
    key = zlib.crc32(raw)
    length, reason = limits.max_new_tokens, {"type": "length", "length": limits.max_new_tokens}
    stop = random.Random(key).randint(16, 512)
    if not limits.ignore_eos and stop < length:
        length, reason = stop, {"type": "stop", "matched": 2}
    return RunningRequest(rid or uuid.uuid4().hex, kind, tokens, key, length, reason)


def read_prompts(body: Any) -> tuple[list[str | list[int]], bool]:
    """Return the prompts of a /generate body, and True if they are a list.

    Raises BadRequestError.
    """
    if not isinstance(body, dict):
        raise BadRequestError("The body must be a JSON object.")
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise BadRequestError("Either text or input_ids should be provided, and not both.")
    prompt: Any = ids if text is None else text
    if isinstance(prompt, str):
        return [prompt], False
    if _is_ids(prompt):
        return [prompt], False
    if (
        isinstance(prompt, list)
        and prompt
        and all(isinstance(p, str) or _is_ids(p) for p in prompt)
    ):
        return prompt, True
    raise BadRequestError("text is a string, input_ids are integers, or lists of those.")


def _is_ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
    )


class Wire:
    """Writes the answers to one request."""

    def __init__(
        self,
        request: RunningRequest,
        speculation: Speculation | None,
        release: Release,
        index: int | None = None,
    ) -> None:
        self._request = request
        self._speculation = speculation
        self._release = release
        self._arrived = time.monotonic()
        self._sent = 0
        self._sent_characters = 0
        self._sent_ids = 0
        suffix = "" if index is None else f', "index": {index}'
        self._end = f"}}{suffix}}}\n\n".encode()

    def chunk(self, incremental: bool = False) -> bytes:
        """Return the next event: all text and ids so far, or only new ones if incremental."""
        request = self._request
        text, ids = request.text, request.output_ids
        if incremental:
            text, ids = text[self._sent_characters :], ids[self._sent_ids :].lstrip(", ")
            self._sent_characters, self._sent_ids = len(request.text), len(request.output_ids)
        if request.finished:
            meta = json.dumps(self.meta_info())[1:-1]
        else:
            # Built by hand: at 512 streams this is most of what the server does.
            meta = (
                f'"id": "{request.rid}", "finish_reason": null, '
                f'"prompt_tokens": {request.prompt_tokens}, "weight_version": "default", '
                f'"num_retractions": 0, "reasoning_tokens": 0, '
                f'"completion_tokens": {request.tokens}, '
                f'"cached_tokens": {request.cached_tokens}, '
                '"cached_tokens_details": null, "dp_rank": null'
            )
        head = f'data: {{"text": "{text}", "output_ids": [{ids}], "meta_info": {{{meta}'
        return head.encode() + self._end

    def answer(self) -> dict[str, Any]:
        """Return the whole answer of a finished request."""
        request = self._request
        ids = [int(i) for i in request.output_ids.split(", ")] if request.output_ids else []
        return {"text": request.text, "output_ids": ids, "meta_info": self.meta_info()}

    def new_text(self) -> str:
        """Return the text since the last call."""
        text = self._request.text[self._sent_characters :]
        self._sent_characters = len(self._request.text)
        return text

    def meta_info(self) -> dict[str, Any]:
        """Return meta_info of the final chunk."""
        request = self._request
        return {
            "id": request.rid,
            "finish_reason": request.finish_reason,
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": request.tokens,
            "cached_tokens": request.cached_tokens,
            "cached_tokens_details": None,
            "dp_rank": None,
            "e2e_latency": time.monotonic() - self._arrived,
            **self._spec_fields(),
            "response_sent_to_client_ts": time.time(),
        }

    def _spec_fields(self) -> dict[str, Any]:
        request, spec = self._request, self._speculation
        if spec is None or request.verify_ct == 0:
            return {}
        proposed = request.verify_ct * (spec.draft_tokens - 1)
        correct, histogram = request.correct_drafts, list(request.histogram)
        spelled = {
            "spec_accept_rate": correct / proposed,
            "spec_accept_length": request.tokens / request.verify_ct,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": request.verify_ct,
            "spec_accepted_drafts": correct,
            "spec_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": histogram,
            "spec_accept_histogram": histogram,
            "spec_accept_token_num": correct,
            "spec_draft_token_num": proposed,
        }
        known = self._release.meta_info
        return {name: value for name, value in spelled.items() if name in known}
