"""What is a secret, and what stands in its place: `${NAME}`, which works where NAME is set.

A secret is known by the name in front of it (`api-key`, `HF_TOKEN=`, `"password":`), by its place
in a URL (`user:password@`), by a shape that only tokens have (`hf_...`), or by its value once
somebody has called `learn`: then it is hidden wherever it appears. Values that could be a plain
word are hidden by name alone.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from urllib.parse import quote, unquote

_PLAIN_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MIN_LEARNT = 8
_MIN_PLAIN = 16
"""Shorter values are not looked for everywhere: they would blot out words that are no secrets."""
_NO_VALUE = frozenset(
    ["none", "null", "true", "false", "unset", "...", "***", "(hidden)", "[hidden]"]
)
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_QUOTED = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_BARE = r"(?:\$\{\w+\}|[^\s\"'&,;)}\]<>]+)"
_NAME = r"(?<![\w.-])-{0,2}(?P<name>[A-Za-z_][\w.-]*)"
_NAMED = (
    (
        re.compile(rf"{_NAME}[\"']?[ \t]?=[ \t]?"),
        re.compile(rf"{_QUOTED}|{_BARE}"),
    ),
    # After a colon a sentence may follow, as in this package's own messages.
    (
        re.compile(rf"{_NAME}[\"']?[ \t]?:[ \t]*"),
        re.compile(rf"{_QUOTED}|{_BARE}(?=[ \t]*(?:$|[,}}\]#]))", re.MULTILINE),
    ),
    (
        re.compile(r"(?<![\w-])--(?P<name>[a-z][\w-]*)[ \t]+"),
        re.compile(rf"{_QUOTED}|(?!-){_BARE}"),
    ),
)
"""What stands before a value, and the value. Of names that are no secret's the value is not looked
at: in `args=Args(api_key=...)` one holds the next name, and each would be read to its end."""
_SENT = (
    re.compile(rf"(?P<name>[Aa]uthorization)[\"']?[:=][ \t]*[\"']?\w+[ \t]+(?P<value>{_BARE})"),
    re.compile(r"(?P<name>\b[Bb]earer)[ \t]+(?P<value>[\w.~+/=-]{16,})"),
)
_SHAPE = re.compile(
    r"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|AKIA[A-Z0-9]{16}|glpat-[\w-]{16,})"
)
# With a slash in the password only where it does not begin as a port does.
_URL = re.compile(r"://[^\s/:@\"'<>]*:(?!\d+[/?#])")
_URL_REST = re.compile(r"[^\s\"'<>]*")
_WHOLE_URL = re.compile(
    r"(?!https?://[^/:@]*:\d+(?:[/?#\s]|$))[A-Za-z][\w+.-]*://(?P<url>[^/:@]*)"
    r":(?P<value>[^\r\n]+)@[^@\r\n]*"
)
"""A text that is a URL and nothing else: its password may hold what ends a URL in a sentence."""
_HINT = re.compile(
    r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth|bearer|dsn|://|hf_|sk-|gh[pousr]_"
    r"|github_pat_|AKIA|glpat-"
)
"""Text without any of these has no secret that is known by its surroundings."""
URL_PASSWORD = "URL_PASSWORD"  # noqa: S105 (the variable's name)

_known: dict[str, str] = {}
_known_pattern: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Span:
    """A secret's place in a text, and the variable that stands for it."""

    start: int
    end: int
    variable: str


def variable_name(name: str) -> str:
    """The variable that stands for a secret of this name: `api-key` is API_KEY."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition(".")[2]).strip("_").upper()
    return f"_{text}" if text[:1].isdigit() or not text else text


def placeholder(name: str) -> str:
    """`${NAME}`."""
    return f"${{{variable_name(name)}}}"


def variable_in(text: str) -> str | None:
    """NAME where the text is `${NAME}` and nothing else."""
    found = _PLACEHOLDER.fullmatch(text)
    return found[1] if found else None


def spans(text: str) -> list[Span]:
    """The secrets of a text that are known by what is around them, in order, none twice.

    Also those that have their placeholder already.
    """
    if _HINT.search(text) is None:
        return []
    found: list[Span] = []
    taken = bytearray(len(text))
    shapes = (Span(*match.span(), "TOKEN") for match in _SHAPE.finditer(text))
    for span in chain(*(_named(text, *e) for e in _NAMED), _sent(text), _in_urls(text), shapes):
        if taken.find(1, span.start, span.end) < 0:
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            found.append(span)
    return sorted(found, key=lambda span: span.start)


def _named(text: str, before: re.Pattern[str], value: re.Pattern[str]) -> Iterator[Span]:
    """The values of secrets by the names that stand before them.

    Each part of the text is looked at a fixed number of times, whatever a server writes in its log:
    the search goes on behind a value, and behind a run that held none.
    """
    at = barren = 0
    while name := before.search(text, at):
        at = name.end()
        if not is_secret(name["name"]) or (at < barren and text[at : at + 1] not in ("'", '"')):
            continue
        if match := value.match(text, at):
            at = max(at, match.end())
            if span := _span(name["name"], match):
                yield span
        else:
            barren = max(at, _RUN.match(text, at).end())  # type: ignore[union-attr]


_RUN = re.compile(r"[^\s\"'&,;)}\]<>]*")


def _sent(text: str) -> Iterator[Span]:
    """What an Authorization header carries."""
    authorization, bearer = _SENT
    for match in authorization.finditer(text):
        if span := _span(match["name"], match, "value"):
            yield span
    for match in bearer.finditer(text):
        if _is_value(match["value"]):
            yield Span(*match.span("value"), "TOKEN")


def _in_urls(text: str) -> Iterator[Span]:
    """Passwords in URLs, up to the last @ before what ends a URL in a sentence."""
    at = barren = 0
    while before := _URL.search(text, at):
        at = before.end()
        if at < barren:
            continue
        end = _URL_REST.match(text, at).end()  # type: ignore[union-attr]
        last = text.rfind("@", at, end)
        if last > at:
            if _is_value(text[at:last]):
                yield Span(at, last, URL_PASSWORD)
            at = last
        elif last < 0:
            barren = end


def _span(name: str, match: re.Match[str], group: str | int = 0) -> Span | None:
    value, (start, end) = match[group], match.span(group)
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    if is_quoted:
        value, start, end = value[1:-1], start + 1, end - 1
    if not _is_value(value):
        return None
    if not is_secret(name) or value == variable_name(name):  # the latter: argparse's usage
        return None
    is_count = not is_quoted and re.fullmatch(r"[-+0-9.,e]+", value) is not None
    if is_count and name.lower().endswith("token"):
        return None
    return Span(start, end, variable_name(name))


def spans_of_word(word: str, name: str | None = None) -> list[Span]:
    """The secrets of a word of a command line or of a value, `name` being what stands before it.

    `NAME=VALUE` is one secret to its end, whatever is in it.
    """
    if name is not None and is_secret(name):
        return [Span(0, len(word), variable_name(name))] if _is_value(word) else []
    match = re.fullmatch(r"-{0,2}(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.+)", word, re.DOTALL)
    if match and is_secret(match["name"]) and _is_value(match["value"]):
        return [Span(match.start("value"), len(word), variable_name(match["name"]))]
    url = _WHOLE_URL.fullmatch(word)
    if url is None or not _is_value(url["value"]):
        return spans(word)
    own = Span(*url.span("value"), URL_PASSWORD)
    return [own, *(each for each in spans(word) if each.start >= own.end)]


def _is_value(text: str) -> bool:
    return bool(text) and text.lower() not in _NO_VALUE


def hidden(text: str) -> str:
    """The text with `${NAME}` for each secret that is known by its surroundings or by value."""
    return _hidden(text, spans(text))


def hidden_word(word: str, name: str | None = None) -> str:
    """`hidden` for one word or value; `name` is what stands before it."""
    return _hidden(word, spans_of_word(word, name))


def _hidden(text: str, found: Sequence[Span]) -> str:
    parts, end = [], 0
    for span in found:
        if variable_in(text[span.start : span.end]) is None:
            parts += [hidden_values(text[end : span.start]), f"${{{span.variable}}}"]
            end = span.end
    return "".join([*parts, hidden_values(text[end:])])


def hidden_values(text: str) -> str:
    """The text with `${NAME}` for each value that was learnt, in whatever escapes it stands."""
    if _known_pattern is None:
        return text
    return _known_pattern.sub(lambda match: f"${{{_known[match[0]]}}}", text)


def hide_arguments(words: Sequence[str]) -> tuple[str, ...]:
    """A command line; what follows `--api-key` is hidden."""
    before = ("", *words)
    return tuple(
        hidden_word(word, flag_in(flag)) for flag, word in zip(before, words, strict=False)
    )


def flag_in(word: str) -> str | None:
    """The name of a flag whose value, the next word, is a secret; None for any other word."""
    name = word[2:] if word.startswith("--") else ""
    return name if is_secret(name) and "=" not in name else None


def learn_url(url: str) -> None:
    """Hide the password of a URL from now on wherever it appears."""
    for span in spans_of_word(url):
        value = url[span.start : span.end]
        for spelling in {value, unquote(value)}:  # a driver has it without its escapes
            learn(spelling, span.variable)


def learn(value: str, variable: str) -> None:
    """Hide this value from now on wherever it appears; one that may be a plain word is not."""
    global _known_pattern
    word = _PLAIN_WORD.fullmatch(value)
    if len(value) < (_MIN_PLAIN if word else _MIN_LEARNT) or variable_in(value):
        return
    new = {form: variable for form in _forms(value) if form not in _known}
    if new:
        _known.update(new)
        longest_first = sorted(_known, key=len, reverse=True)
        _known_pattern = re.compile("|".join(map(re.escape, longest_first)))


def _forms(value: str) -> Iterator[str]:
    """A value as it stands in texts, in JSON, in Python's and the shell's quotes, in URLs."""
    yield value
    for text in (unquote(value), value):
        yield from (text, repr(text)[1:-1], quote(text, safe=""), quote(text))
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
        yield shlex.quote(text).removeprefix("'").removesuffix("'")
        yield json.dumps(json.dumps(text)[1:-1])[1:-1]  # JSON in a text of JSON


def learn_environment(environ: Mapping[str, str]) -> None:
    """Learn what the variables of this process hold in secret."""
    for name, value in environ.items():
        if is_secret(name) and not value.startswith(("/", ".")):
            learn(value, name)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECRET = _set(
    "secret secrets password passwords passwd passphrase credential credentials apikey apikeys "
    "authorization dsn"
)
"""Any of these in a name makes it one of a secret."""
_ENDINGS = ("password", "passwd", "passphrase", "apikey")
"""So does a word that ends so: PGPASSWORD, sslpassword."""
_ABOUT = _set(
    "file path dir directory name length len size count type url header mode map id format "
    "expiry ttl policy"
)
"""A name that ends with one of these tells of a secret and does not hold it."""
_PLAIN_BEFORE = {
    "key": _set(
        "routing sort cache partition primary foreign group hash index public request dict map "
        "metric lookup config field state batch lora image prefix block unique label message "
        "object column row mesh attention weight query per registry node expert unknown this "
        "missing duplicate the a that each same no"
    ),
    "token": _set(
        "pad eos bos unk sep cls mask stop end start think thinking image audio video vision media "
        "special draft bonus next first last new max min num per each input output prompt "
        "completion prefill decode generated accepted accept one by of to inter ms s text id "
        "cached reasoning tool begin im added additional speculative extra time verified verify "
        "sampled current previous prev mtp nextn a the single no that this every second"
    ),
    "pwd": _set("old init"),
}
"""Words in front of `key`, `token` and `pwd` that say it is no secret; alone they are none."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: a flag, a variable, a key, in any spelling."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    *before, last = words
    if last in _ABOUT:
        return words[-3:] == ["access", "key", "id"]
    if _SECRET.intersection(words) or words[-2:] == ["api", "keys"]:
        return True
    if any(word.endswith(_ENDINGS) for word in words):
        return True
    return bool(before) and last in _PLAIN_BEFORE and before[-1] not in _PLAIN_BEFORE[last]
