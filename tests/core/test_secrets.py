"""A run folder goes into a bug report, a terminal into a chat: no key may travel with them."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.sweeps import TINY
from tuner.config.credentials import without_secrets
from tuner.config.loader import load_sweep
from tuner.core import secrets
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.core.secrets import is_secret
from tuner.runs.run import Run
from tuner.server.base import Command
from tuner.server.launch_script import launch_script, shell_line
from tuner.server.log_file import HEAD_BYTES, TAIL_BYTES, ServerLog
from tuner.sglang.flag_catalogue import arguments, releases

ONES_OWN = [
    "api-key",
    "admin-api-key",
    "ssl-keyfile-password",
    "api_key",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "WANDB_API_KEY",
    "MY_TOKEN",
    "DB_PASSWORD",
    "accessToken",
    "Authorization",
    "PGPASSWORD",
    "sslpassword",
]
HARMLESS = [
    "num_draft_tokens",
    "tokenizer-path",
    "max-total-tokens",
    "ssl-keyfile",
    "speculative-token-map",
    "ms_per_token",
    "pad_token",
    "#token",
    "token",
    "key",
    "unknown key",
    "PWD",
    "OLDPWD",
    "AWS_REGION",
    "HF_TOKEN_PATH",
    "routing-key",
    "task_tokens",
    "first_token",
    "tokenizer-worker-num",
]


@pytest.mark.parametrize("name", ONES_OWN)
def test_credentials_are_known_by_their_names(name: str) -> None:
    """A name that is not known is printed in full."""
    assert is_secret(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_only_sound_like_secrets_are_shown(name: str) -> None:
    """A report with max-total-tokens hidden cannot be reproduced."""
    assert not is_secret(name)


def test_of_sglang_s_own_flags_only_the_credentials_are_hidden() -> None:
    """Each release's flags, by name: one hidden by mistake is missing from best.sh."""
    known = {name for release in releases() for name in arguments(release)}
    assert {"tokenizer-path", "max-total-tokens", "ssl-keyfile"} <= known
    hidden = {name for name in known if is_secret(name)}
    assert hidden == {"api-key", "admin-api-key", "ssl-keyfile-password"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key='abc', max_total_tokens=5", "api_key='${API_KEY}', max_total_tokens=5"),
        ("x=Args(api_key=None, hf_token=t1)", "x=Args(api_key=None, hf_token=${HF_TOKEN})"),
        ('{"api_key": "a\\"b", "n": 1}', '{"api_key": "${API_KEY}", "n": 1}'),
        ("run --api-key s3cret --tp 2", "run --api-key ${API_KEY} --tp 2"),
        ("--api-key=s3cret", "--api-key=${API_KEY}"),
        ("[--api-key API_KEY]", "[--api-key API_KEY]"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ${AUTHORIZATION}"),
        ("postgresql://me:p@ss@h/db", "postgresql://me:${URL_PASSWORD}@h/db"),
        ("at postgresql://me:p/s?s@h/db now", "at postgresql://me:${URL_PASSWORD}@h/db now"),
        ("http://proxy:8080/models/org@rev", "http://proxy:8080/models/org@rev"),
        ("mysql://h/db?password=abc&ssl=1", "mysql://h/db?password=${PASSWORD}&ssl=1"),
        ("http://127.0.0.1:30000/x", "http://127.0.0.1:30000/x"),
        ("HF_TOKEN: hf", "HF_TOKEN: ${HF_TOKEN}"),
        ("f:3: server.flags.api-key: this is wrong", "f:3: server.flags.api-key: this is wrong"),
        ("token usage: 0.1, #token: 12, eos_token=2", "token usage: 0.1, #token: 12, eos_token=2"),
        ("my_token=12", "my_token=12"),
        ("cloned https://ghp_012345678901234567890123@x", "cloned https://${TOKEN}@x"),
    ],
)
def test_texts_hide_secrets_by_what_is_around_them(text: str, shown: str) -> None:
    """Logs are others' texts: what is not known by value must be known by its place."""
    assert secrets.hidden(text) == shown
    assert secrets.hidden(shown) == shown


@pytest.mark.parametrize(
    "piece",
    ["://a:1", "://a:b@", "api_key:", "api_key=", "api_key=x ", "--api-key ", "api_key='", "key: ",
     "hf_", "Bearer ", "Authorization: a ", "a.", " ", '"', "\\"],
)  # fmt: skip
def test_a_log_without_breaks_is_searched_in_a_moment(piece: str) -> None:
    """A server can write what it likes; its log is searched for secrets at each launch's end."""
    longer = Counter[int]()
    for size in (20_000, 320_000):
        text = "api_key:" + piece * (size // len(piece))
        began = time.process_time()
        secrets.hidden(text)
        longer[size] = 1 + int(1000 * (time.process_time() - began))
    assert longer[320_000] < 100 * longer[20_000], "16 times as much: 256 where it is quadratic"


@pytest.mark.parametrize("password", ["a/b", "a b", "it's", 'a"b', "<a>", "a@b", "12/3 4", "x"])
def test_a_url_s_password_may_be_anything(password: str) -> None:
    """SQLAlchemy takes it without escapes; the rest of a text would show what a sentence's end cut
    off."""
    for scheme in ("postgresql", "mysql+pymysql"):
        url = f"{scheme}://me:{password}@h:5432/db?user=a@b"
        assert password not in secrets.hidden_word(url).removeprefix(scheme)
    assert secrets.hidden_word("http://h:30000/a@b") == "http://h:30000/a@b"
    assert secrets.hidden_word("http://h:30000 or a@b") == "http://h:30000 or a@b"


def test_errors_show_no_secret() -> None:
    """Every refusal and failure is printed and kept."""
    assert "s3cret" not in str(UserError("cannot read --api-key s3cret"))
    failure = EngineFailure(Failure.CRASH, "api_key='s3cret' no", "hf_token=s3cret")
    assert "s3cret" not in f"{failure} {failure.message} {failure.log_tail}"


SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=10, max_size=30)
"""Also quotes, backslashes, dollars; `unguessable` makes each one unlike any other word."""


def unguessable(core: str) -> str:
    return f"Zq7{core}9xW"


def forms(secret: str) -> Iterator[str]:
    """How it may stand in a file."""
    yield from (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""))
    yield secret[:9]  # one that was cut


def contents(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            yield path, data.decode("utf-8", errors="replace")


def refuse_leaks(found: list[str], places: list[tuple[Path | str, str]]) -> None:
    for place, text in places:
        for secret in found:
            for form in forms(secret):
                assert form not in text, f"{place} shows {form}"


def specbench(*words: str | Path, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **env},
    )
    return done.returncode, done.stdout, done.stderr


def sweep_with(found: list[str], faults: str = "") -> str:
    """The tiny sweep with a secret at each place of a sweep file."""
    text = TINY.replace("FAULTS", faults).replace("SEARCH", "trials: 1, stages: []")
    data = yaml.safe_load(text.replace("STEPS", "2"))
    flag, variable, word, baseline, comment = found
    data["engine"]["command"] = ["env", f"MY_TOKEN={word}"]
    data["server"] = {"flags": {"api-key": flag}, "env": {"HF_TOKEN": variable}}
    data["baseline"] = {"env": {"WANDB_API_KEY": baseline}}
    return yaml.safe_dump(data, width=1000) + f"# once: HF_TOKEN={comment.replace(' ', '')}\n"


@settings(
    max_examples=3,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cores=st.lists(SECRETS, min_size=6, max_size=6, unique=True))
def test_no_secret_of_a_run_is_in_its_files_or_on_the_terminal(
    tmp_path_factory: pytest.TempPathFactory, cores: list[str]
) -> None:
    """In a finished run: ledger, copies, logs, study, notes, reports, scripts, output."""
    folder = tmp_path_factory.mktemp("leaks")
    *found, inherited = map(unguessable, cores)
    found[4] = re.sub(r"[^A-Za-z0-9]", "x", found[4])  # a comment is known by its pattern alone
    file = folder / "tiny.yaml"
    file.write_text(sweep_with(found))
    env = {"OPENAI_API_KEY": inherited, "COLUMNS": "4000"}
    everything = [*found, inherited]
    code, out, err = specbench("sweep", file, "--out", folder / "out", **env)
    assert code == 0, err
    (path,) = (folder / "out").iterdir()
    plan = specbench("plan", file, **env)
    as_json = specbench("plan", file, "--json", **env)
    doctor = specbench("doctor", file, **env)
    assert plan[0] == as_json[0] == 0
    refuse_leaks(
        everything,
        [
            ("sweep", out + err),
            ("plan", "".join(plan[1:])),
            ("plan --json", "".join(as_json[1:])),
            ("doctor", "".join(doctor[1:])),
            *contents(path),
        ],
    )
    log = (path / "logs" / "0000.log").read_text()
    assert re.search(r"""api_key=(['"])\$\{API_KEY\}\1""", log)  # Python's quotes go by the value
    best = (path / "best.sh").read_text()
    assert "export HF_TOKEN=" in best
    assert "${API_KEY:?" in best


def test_a_server_that_dies_shows_no_secret_either(tmp_path: Path) -> None:
    """The end of the log is printed just then, and often sent on."""
    found = [unguessable(core) for core in ("fl'ag", "var\\able", 'wo"rd', "ba$e", "comment")]
    file = tmp_path / "tiny.yaml"
    file.write_text(sweep_with(found, "{kind: die-loading}"))
    code, out, err = specbench("sweep", file, "--out", tmp_path / "out")
    assert code == 1
    assert "MODEL_LOAD" in err
    (path,) = (tmp_path / "out").iterdir()
    refuse_leaks(found, [("sweep", out + err), *contents(path)])


def test_a_mistake_beside_a_secret_does_not_show_it(tmp_path: Path) -> None:
    """A refusal quotes what does not fit."""
    secret = unguessable("abcdefgh")
    file = tmp_path / "tiny.yaml"
    text = sweep_with([secret] * 5)
    for right, wrong in (
        ("target: some/model", f"target: [{secret}]"),
        ("HF_TOKEN: ", "HF_TOKEN: : "),
        ("search:", f"search:\n  storage: postgresql://me:{secret}@127.0.0.1:1/no"),
        ("space:", f"space:\n  flags: {{admin-api-key: [{secret}]}}"),
    ):
        file.write_text(text.replace(right, wrong))
        code, out, err = specbench("sweep", file, "--out", tmp_path / "out")
        assert code == 2, (right, err)
        refuse_leaks([secret], [("sweep", out + err)])
        assert specbench("doctor", file)[1].count(secret) == 0


def test_a_run_goes_on_with_the_file_or_with_the_variables(tmp_path: Path) -> None:
    """The copy has no secrets: where they come from is asked for, and a new key is no new run."""
    found = [unguessable(core) for core in ("flag", "variable", "word", "baseline", "comment")]
    file = tmp_path / "tiny.yaml"
    file.write_text(sweep_with(found))
    code, _, err = specbench("sweep", file, "--out", tmp_path / "out")
    assert code == 0, err
    (path,) = (tmp_path / "out").iterdir()
    assert specbench("sweep", file, "--resume", path)[0] == 0
    file.write_text(sweep_with([*reversed(found)]))
    assert specbench("sweep", file, "--resume", path)[0] == 0
    code, _, err = specbench("sweep", "--resume", path)
    assert code == 2
    assert "is not set: export it, or write the secret here" in err
    names = ("MY_TOKEN", "API_KEY", "HF_TOKEN", "WANDB_API_KEY")
    given = dict(zip(names, found, strict=False))
    code, out, err = specbench("sweep", "--resume", path, "--trials", "+1", **given)
    assert code == 0, err
    refuse_leaks(found, [("resume", out + err), *contents(path)])
    loaded = load_sweep(path / "best.yaml", environ=given)
    assert loaded.sweep.server.flags["api-key"] == given["API_KEY"]
    assert loaded.sweep.engine.command == ["env", f"MY_TOKEN={given['MY_TOKEN']}"]
    assert Run.open(path).sweep().server.env["HF_TOKEN"] == "${HF_TOKEN}"


def test_a_sweep_file_may_name_a_variable(tmp_path: Path) -> None:
    """A file that lies in a repository has no key in it."""
    file = tmp_path / "tiny.yaml"
    file.write_text(
        'name: x\nengine: {kind: simulated}\nserver: {flags: {api-key: "${MINE}", x: "${MINE}"}}\n'
        "model: {target: a, draft: b, algorithm: EAGLE3}\nspace: {num_steps: [1]}\n"
    )
    loaded = load_sweep(file, environ={"MINE": "of this machine"})
    assert loaded.sweep.server.flags == {"api-key": "of this machine", "x": "${MINE}"}
    with pytest.raises(UserError, match=r":3: server.flags.api-key: the variable MINE is not set"):
        load_sweep(file, environ={})
    assert loaded.text_without_secrets == loaded.text


@given(secret=SECRETS.map(unguessable), style=st.sampled_from(["'", '"', "|"]))
def test_a_copy_without_secrets_is_the_same_file_else(secret: str, style: str) -> None:
    """Comments, order and spelling of a sweep file are what its author knows it by."""
    written = {
        '"': json.dumps(secret),
        "'": "'" + secret.replace("'", "''") + "'",
        "|": f"|-\n    {secret}",
    }[style]
    text = f"# mine\nname:   x # so\na: &k {{b: [1,2]}}\nserver:\n  hf-token: {written}\nz: *k\n"
    copy = without_secrets(text, yaml.compose(text))
    assert secret not in copy
    assert copy.startswith("# mine\nname:   x # so\na: &k {b: [1,2]}\nserver:\n  hf-token: ")
    assert yaml.safe_load(copy) == {**yaml.safe_load(text), "server": {"hf-token": "${HF_TOKEN}"}}
    assert without_secrets(copy, yaml.compose(copy)) == copy


@given(secret=SECRETS)
def test_best_sh_works_once_its_variables_are_set(secret: str) -> None:
    """A winner that cannot be launched is no winner."""
    command = Command(
        ("printf", "%s\n", "--api-key", secret, f"A_TOKEN={secret}", "${HOME}", "x y"),
        {"HF_TOKEN": secret, "NCCL_PROTO": "LL"},
        frozenset(),
    )
    script, line = launch_script(command), shell_line(command)
    given = {"API_KEY": secret, "A_TOKEN": secret, "HF_TOKEN": secret, "PATH": os.environ["PATH"]}
    for text in (script, line):
        assert secret not in shlex.split(text)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=given)
        assert done.stdout.splitlines() == [
            *("--api-key", secret, f"A_TOKEN={secret}", "${HOME}", "x y")
        ]
        refused = subprocess.run(
            ["bash", "-c", text], capture_output=True, text=True, env={"PATH": given["PATH"]}
        )
        assert refused.returncode != 0
        assert "set it, it is a secret" in refused.stderr


def test_a_log_with_a_secret_in_each_line_is_hidden_line_by_line() -> None:
    """Each was held against all before it: such a log was sealed for hours, Ctrl-C waiting."""
    line = "GET /generate Authorization: Bearer abcdefghijklmnop1234567, api_key='s3cret-{}'\n"
    text = "".join(line.format(n) for n in range(30_000))
    shown = secrets.hidden(text)
    assert shown.count("${AUTHORIZATION}") == shown.count("${API_KEY}") == 30_000
    assert "s3cret" not in shown and "1234567" not in shown


def test_a_log_of_gigabytes_keeps_its_head_and_its_end(tmp_path: Path) -> None:
    """A server that logs in a loop must not fill the disk, nor hide how it began and died."""
    log = ServerLog(tmp_path / "0000.log")
    line = b"x" * 99 + b"\n"
    count = 0
    with log.path.open("ab") as server:
        server.write(b"begin\n")
        for _ in range(2):
            more = (HEAD_BYTES + TAIL_BYTES) // 100 + 50_000
            server.write(line * more)
            server.flush()
            count += more
            log.cut(HEAD_BYTES + TAIL_BYTES + 1000)
        server.write(b"api_key='s3cret'\nend\n")
    log.seal()
    data = log.path.read_bytes()
    assert data.startswith(b"begin\n" + line)
    assert data.endswith(b"api_key='${API_KEY}'\nend\n")
    assert len(data) < HEAD_BYTES + TAIL_BYTES + 1000
    (left_out,) = re.findall(rb"\[specbench left out ([0-9]+) bytes here\]\n", data)
    assert int(left_out) + 100 * data.count(line) == 100 * count
