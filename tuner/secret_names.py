"""Which names are those of secrets: flags, variables, keys of files, in any spelling."""

import re
from functools import lru_cache


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
