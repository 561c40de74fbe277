"""The keys that a server wants of whoever asks it something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.core.errors import UserError


@dataclass(frozen=True)
class Keys:
    """SGLang's `--api-key` and `--admin-api-key`; None: it has none. Never shown."""

    api: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)
    """What changes the server (emptying its cache, its chain length) wants this one where it has
    one, and then does not take the other (sglang/srt/utils/auth.py, ADMIN_OPTIONAL)."""

    def __post_init__(self) -> None:
        """Raises UserError for a key that no header can carry as SGLang compares it."""
        for key in (self.api, self.admin):
            if key is not None and (
                not key.isascii() or not key.isprintable() or key != key.strip()
            ):
                raise UserError(
                    "an API key is printable ASCII without spaces around it, or no request could "
                    "carry it: use another one"
                )

    @classmethod
    def of_flags(cls, flags: Mapping[str, Any]) -> "Keys":
        """What a server that is launched with these flags wants."""
        api, admin = (flags.get(name) for name in ("api-key", "admin-api-key"))
        return cls(*(None if key is None else str(key) for key in (api, admin)))

    def headers(self, *, changes: bool = False) -> dict[str, str]:
        """Of a request; `changes` where it changes the server."""
        key = self.admin if changes and self.admin is not None else self.api
        return {} if key is None else {"Authorization": f"Bearer {key}"}


NO_KEYS = Keys()
