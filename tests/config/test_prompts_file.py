"""A user's own prompts: a mistake costs one sentence with its line."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from tuner.config.prompts import load_prompts
from tuner.core.errors import UserError

GOOD = b'{"prompt": "a"}\n'

WRONG = [
    (b'{"prompt": "b", "prompt": "c"}', "key 'prompt' is there twice"),
    (b'{"messages": [{"role": "user", "content": "b", "role": "user"}]}', "key 'role' is there"),
    (b'{"prompt": "b\\u0000"}', "a text cannot hold the character NUL"),
    (b'{"prompt": "b", "id": "\\ud800"}', "half a character"),
    (b'{"prompt": "b", "kind": "\\u0000"}', "a text cannot hold the character NUL"),
    (b'{"messages": [{"role": "user", "content": "\\udfff"}]}', "half a character"),
    (b'{"prompt": "b", "x\\ny\\u0000": 1}', "unknown key 'x\\ny\\x00'"),
    (b'{"prompt": "\xff"}', "this is not UTF-8 text"),
    (b'{"prompt": "b"', "this line is not JSON"),
    (b"[" * 100_000, "this is nested too deep"),
    (b'{"prompt": " "}', "this prompt is empty"),
    (b'{"prompt": "b", "id": "line-1"}', "id 'line-1' is there twice"),
    (b'{"prompt": "b", "kind": ""}', "id and kind are words"),
    (b'{"prompt": "b", "id": "x\\ny"}', "id and kind are one line each"),
    (b'{"prompt": "b\0"}', "there is a NUL in this line"),
    (b"{", "this object goes on in the next line, put each on a line of its own"),
    (b'{"prompt": "b"}\r{"prompt": "c"}', "lines end in CR alone here"),
    (b'{"prompt": "b", "id": 3}', "id and kind are texts"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    (tmp_path / "p.jsonl").write_bytes(GOOD + line + b"\n")
    with pytest.raises(UserError) as caught:
        load_prompts("p.jsonl", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/p.jsonl:2: {said}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_byte_order_mark_and_windows_lines_are_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") * 1)
    (prompt,) = load_prompts("p.jsonl", tmp_path)
    assert prompt.text == "a"


def test_pairs_of_escapes_are_one_character(tmp_path: Path) -> None:
    """JSON writes characters beyond 16 bits as two halves; they are whole when read."""
    (tmp_path / "p.jsonl").write_bytes(b'{"prompt": "\\ud83d\\ude00"}\n')
    assert load_prompts("p.jsonl", tmp_path)[0].text == "\U0001f600"


def test_a_file_without_prompts_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(b"\n")
    with pytest.raises(UserError, match=r"p\.jsonl:1: there is no prompt"):
        load_prompts("p.jsonl", tmp_path)


OTHERS = [
    (gzip.compress(GOOD), "this is compressed by gzip, unpack it with gunzip"),
    (bz2.compress(GOOD), "this is compressed by bzip2, unpack it with bunzip2"),
    (lzma.compress(GOOD), "this is compressed by xz, unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd rest", "this is compressed by zstd, unpack it with unzstd"),
    (b"PK\x03\x04 rest", "this is a zip archive, unpack it and name the file in it"),
    (b"PAR1 rest", "this is a Parquet file, save its rows as JSON Lines"),
    (GOOD.decode().encode("utf-16"), "this is UTF-16 text, save it as UTF-8"),
]


@pytest.mark.parametrize(("data", "said"), OTHERS, ids=[said for _, said in OTHERS])
def test_a_file_of_another_sort_is_called_by_its_name(
    tmp_path: Path, data: bytes, said: str
) -> None:
    """`not UTF-8` sends people to look for an odd letter in an archive."""
    (tmp_path / "p.jsonl").write_bytes(data)
    with pytest.raises(UserError) as caught:
        load_prompts("p.jsonl", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/p.jsonl:1: {said}")
