"""What is known of a model without loading it: where it lies, its config.json, its chat template.

SGLang takes a name that is a folder here as that folder, and any other as a name on the hub, which
huggingface_hub looks up in its cache first. Only `local` and `read_config` touch the disk.
"""

import hashlib
import json
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_TRUE = ("1", "ON", "YES", "TRUE")  # huggingface_hub/constants.py, ENV_VARS_TRUE_VALUES
# huggingface_hub/utils/_validators.py, validate_repo_id: any other name is refused unasked
_HUB_NAME = re.compile(r"(\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_INNER = ("text_config", "language_config", "llm_config")
"""Where models of several modalities keep the language model's part."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")

Source = Literal["folder", "file", "cache", "absent", "not cached", "elsewhere"]


Role = Literal["target", "draft"]


@dataclass(frozen=True)
class Config:
    """The part of a config.json that the checks need; None for what it does not say."""

    architecture: str | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    target_hidden_size: int | None = None
    draft_vocab_size: int | None = None
    dtype: str | None = None
    """Of the weights that are not quantised, and of hidden states: `bfloat16`."""
    uses_aux_layers: bool = True
    aux_layers: tuple[int, ...] | None = None
    """eagle_config.eagle_aux_hidden_state_layer_ids: layers of the target, from 0."""


@dataclass(frozen=True)
class Model:
    """A model of the sweep, as far as it is here."""

    role: Role
    name: str
    source: Source
    folder: Path | None = None
    """What SGLang would read; None where there is nothing to read."""
    revision: str = "main"
    """The branch, tag or commit that it is looked for at, of a name on the hub."""
    commit: str | None = None
    """The snapshot's, of a model in the hub's cache."""
    config: Config | None = None
    trouble: str | None = None
    """Why there is no `config` although there is a folder."""
    has_weights: bool = False
    has_template: bool = False


@dataclass(frozen=True)
class Hub:
    """How the server's environment looks names up."""

    cache: Path
    offline: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Hub":
        """As huggingface_hub/constants.py reads it: what is set and empty counts as set."""
        offline = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
        caches = environment.get("XDG_CACHE_HOME", _expanded("~/.cache", environment))
        home = environment.get("HF_HOME", str(Path(caches) / "huggingface"))
        hub = str(Path(_expanded(home, environment)) / "hub")
        cache = environment.get("HF_HUB_CACHE", environment.get("HUGGINGFACE_HUB_CACHE", hub))
        return cls(Path(_expanded(cache, environment)), offline.upper() in _TRUE)

    def snapshot(self, name: str, revision: str) -> Path | None:
        """The folder of a cached model at a branch, tag or commit; None where it is not there.

        Its name is the commit.
        """
        repo = self.cache / f"models--{name.replace('/', '--')}"
        commit = revision
        if not is_commit(revision):
            try:
                commit = (repo / "refs" / revision).read_text(encoding="utf-8").strip()
            except (OSError, ValueError):
                return None
        folder = repo / "snapshots" / commit
        # A download that was cut off leaves an empty ref, which would be the folder `snapshots`.
        return folder if is_commit(commit) and _is_dir(folder) else None


def is_commit(revision: str) -> bool:
    """True for what names one commit for ever, and no branch or tag that moves."""
    return _COMMIT.fullmatch(revision) is not None


def is_hub_name(name: str) -> bool:
    """True for what huggingface_hub would look up, be it there or not."""
    joined = "--" in name or ".." in name or name.endswith(".git")
    return _HUB_NAME.fullmatch(name) is not None and not joined


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """os.path.expandvars(os.path.expanduser(text)) of a process that has `environment`."""
    if re.match("~(/|$)", text):
        home = environment.get("HOME")
        text = (_password_home() if home is None else home.rstrip("/")) + text[1:] or "/"
    elif text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 Path's own raises for an unknown user
    pattern = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)
    return pattern.sub(lambda m: environment.get(m[1] or m[2] or "", m[0]), text)


def _password_home() -> str:
    """The home that the password file names; `~` itself for a user id that it lacks."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")
    except KeyError:
        return "~"


def local(role: Role, name: str, hub: Hub, revision: str = "main") -> Model:
    """A model by the name that the sweep gives it, with what its files say."""
    path = Path(name)
    if _is_dir(path):
        return _read(role, name, "folder", path, "main")
    if os.path.exists(path):  # noqa: PTH110 as _is_dir
        return Model(role, name, "file", path)
    if "://" in name:
        return Model(role, name, "elsewhere")
    if not is_hub_name(name):
        return Model(role, name, "absent")
    folder = hub.snapshot(name, revision)
    if folder is None:
        return Model(role, name, "not cached", revision=revision)
    return _read(role, name, "cache", folder, revision)


def _is_dir(path: Path) -> bool:
    """False also for a name that is too long and in a folder that is closed, where Path raises."""
    return os.path.isdir(path)  # noqa: PTH112


def _read(role: Role, name: str, source: Source, folder: Path, revision: str) -> Model:
    try:
        config, trouble = read_config(folder), None
    except FileNotFoundError:
        config, trouble = None, "has no config.json"
    except (OSError, ValueError, RecursionError) as error:
        config, trouble = None, f"config.json cannot be read: {error}"
    return Model(
        role=role,
        name=name,
        source=source,
        folder=folder,
        revision=revision,
        commit=folder.name if source == "cache" else None,
        config=config,
        trouble=trouble,
        has_weights=any(any(folder.glob(pattern)) for pattern in WEIGHTS),
        has_template=has_template(folder),
    )


def config_data(folder: Path) -> dict[str, Any]:
    """The object in a model folder's config.json. Raises OSError, or ValueError for another."""
    data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    return data


def language_part(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config.json that describes the language model: itself in most."""
    return next((data[name] for name in _INNER if isinstance(data.get(name), dict)), data)


def read_config(folder: Path) -> Config:
    """The config.json of a model folder. Raises OSError, or ValueError for what is no config."""
    data = config_data(folder)
    inner = language_part(data)
    architectures = data.get("architectures")
    eagle = data.get("eagle_config")
    eagle = eagle if isinstance(eagle, dict) else {}
    return Config(
        architecture=architectures[0]
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
        else None,
        hidden_size=_integer(inner, "hidden_size"),
        vocab_size=_integer(inner, "vocab_size"),
        layers=_integer(inner, "num_hidden_layers"),
        heads=_integer(inner, "num_attention_heads"),
        kv_heads=_integer(inner, "num_key_value_heads"),
        target_hidden_size=_integer(data, "target_hidden_size"),
        draft_vocab_size=_integer(data, "draft_vocab_size"),
        dtype=_dtype(inner) or _dtype(data),
        uses_aux_layers=eagle.get("use_aux_hidden_state", True) is not False,
        aux_layers=_integers(eagle.get("eagle_aux_hidden_state_layer_ids")),
    )


def has_template(folder: Path) -> bool:
    """Whether the tokenizer there renders conversations."""
    if any((folder / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    try:
        data = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and bool(data.get("chat_template"))


def _integer(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if type(value) is int and value > 0 else None


def _dtype(data: Mapping[str, Any]) -> str | None:
    """`torch_dtype`, which transformers 5 writes as `dtype`."""
    value = data.get("dtype") or data.get("torch_dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _integers(value: Any) -> tuple[int, ...] | None:
    """None for [] too: SGLang takes its default then."""
    if isinstance(value, list) and value and all(type(each) is int for each in value):
        return tuple(value)
    return None


_FORMAT = "2"
"""Of the digest: what it covers. Digests of two formats say nothing about each other."""
_SMALL = (
    "*config*.json",
    "*.index.json",
    "params.json",
    "tokenizer*",
    "tekken.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
    "*.model",
    "*.tiktoken",
    "chat_template*",
    "*.jinja",
    "*.py",
)
"""Configs, tokenizer, chat template, and code for --trust-remote-code: read whole."""
_SAMPLES, _SAMPLE_BYTES, _APART = 16, 2**16, 2**26
"""Of each weight file: whole checkpoints have up to a terabyte."""


def digest_model(model: Path) -> str | None:
    """`2:` and 16 hex digits of a model's folder, or of a model that is one file.

    Small files count whole, weight files, also those one level below, by name, size and samples:
    64 KiB at least every 64 MiB, and 16 at least, the beginning and the end among them. No times:
    a copy of a folder is the same model. None where a file cannot be read.
    """
    found = hashlib.sha256()
    try:
        small = set(_files(model, _SMALL))
        below = tuple(f"*/{pattern}" for pattern in WEIGHTS)
        weights = set(_files(model, WEIGHTS + below)) if model.is_dir() else {model}
        for path in sorted(small | weights):
            size = path.stat().st_size
            name = os.fsencode(path.relative_to(model))
            found.update(name + f"\0{size}\0".encode())
            if path in small:
                found.update(path.read_bytes())
            else:
                _add_samples(found, path, size)
    except OSError:
        return None
    return f"{_FORMAT}:{found.hexdigest()[:16]}"


def is_comparable(one: str, other: str) -> bool:
    """False for digests of two formats: an older specbench covered other files."""
    return one.rpartition(":")[0] == other.rpartition(":")[0]


def _files(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """Regular files, less those of tools (`.git`, `.cache`)."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if not hidden and path.is_file():
                yield path


def _add_samples(found: Any, path: Path, size: int) -> None:
    count = max(_SAMPLES, size // _APART + 2)
    with path.open("rb") as file:
        for index in range(count):
            file.seek(max(0, size - _SAMPLE_BYTES) * index // (count - 1))
            found.update(file.read(_SAMPLE_BYTES))
