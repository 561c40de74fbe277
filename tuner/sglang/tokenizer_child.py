"""Renders conversations with a model's chat template and tokenises them.

Runs under the interpreter that has SGLang, which also has transformers; imports nothing of
specbench. JSON on standard input:
    {"tokenizer": NAME, "revision": null or NAME, "trust_remote_code": BOOL,
     "conversations": [[[ROLE, TEXT], ...], ...]}
JSON on the last line of standard output:
    {"input_ids": [[ID, ...], ...], "no_template": null or WHY}   or   {"error": WHY}
"""

import json
import os
import sys
from typing import Any

# A script's own folder comes first on the path; its modules are not for transformers to find.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100


def tokenise(order: dict[str, Any]) -> dict[str, Any]:
    """The answer to `order`, both in the shapes above."""
    try:
        from transformers import AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

        at = {} if order["revision"] is None else {"revision": order["revision"]}
        tokenizer = AutoTokenizer.from_pretrained(
            order["tokenizer"], trust_remote_code=order["trust_remote_code"], **at
        )
    except Exception as error:  # noqa: BLE001,RUF100 - model code may raise anything
        return {"error": _one_line(error)}
    conversations = order["conversations"]
    if getattr(tokenizer, "chat_template", None):
        try:
            texts = [_render(tokenizer, each) for each in conversations]
        except Exception as error:  # noqa: BLE001,RUF100 - templates are programs of their own
            return _raw(tokenizer, conversations, f"the chat template fails: {_one_line(error)}")
        # The template has written the special tokens.
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        return {"input_ids": ids, "no_template": None}
    return _raw(tokenizer, conversations, "the model has no chat template")


def _render(tokenizer: Any, conversation: list[list[str]]) -> str:
    messages = [{"role": role, "content": text} for role, text in conversation]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return str(text)


def _raw(tokenizer: Any, conversations: list[list[list[str]]], why: str) -> dict[str, Any]:
    texts = ["\n\n".join(text for _, text in each) for each in conversations]
    return {"input_ids": [tokenizer(text)["input_ids"] for text in texts], "no_template": why}


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    answer = tokenise(json.load(sys.stdin))
    print(json.dumps(answer), flush=True)
