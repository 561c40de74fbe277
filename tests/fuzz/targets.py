"""What is read from outside, each with damaged input: it is taken or refused, and nothing else.

A target raises UserError, NotComparable or EngineFailure where it refuses. Anything else that it
raises is a fault, and so is a Silent: input that is no good and was taken without a word.
"""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.compare.external import files as foreign_files
from tests.factories import SIMULATED, Trial, make_point, make_run
from tests.fuzz import damage
from tuner.analysis.summary import summarise_run
from tuner.compare.external.reader import read_foreign
from tuner.config.loader import load_sweep
from tuner.config.prompts import load_prompts
from tuner.config.task_dataset import load_task
from tuner.core.errors import EngineFailure, UserError
from tuner.loadgen.stream_parser import BadStreamError, TokenStream
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import EngineCounters, RequestSample, Window
from tuner.metrics.samples_file import read_samples, write_samples
from tuner.report.memory import memory_table
from tuner.report.report import write_report
from tuner.runs.ledger import parse_ledger
from tuner.runs.model_configs import read_configs
from tuner.runs.run import Run
from tuner.server import pid_file
from tuner.server.all_reduce import CommResults
from tuner.server.gpu_sampler import find_server_gpus
from tuner.server.http_api import Answer, ServerApi
from tuner.server.log_file import log_tail
from tuner.sglang.dialect import SGLANG
from tuner.sglang.failure_diagnosis import cause_of_death
from tuner.sglang.flags import Identity, running_point
from tuner.sglang.memory.model_shape import DENSE, LATENT, SPARSE, read_shape
from tuner.sglang.memory.weights import draft_bytes, target_bytes
from tuner.sglang.nccl.selection import Screening, read_screening

REFUSED = (UserError, EngineFailure)


class Silent(Exception):
    """Damaged input was taken without a word."""


Target = Callable[[random.Random, Path], None]


def sweep_file(draw: random.Random, folder: Path) -> None:
    path = folder / "s.yaml"
    path.write_bytes(damage.text(draw, draw.choice(_sweeps())).encode("utf-8", "surrogatepass"))
    with patch("tuner.config.space.MAX_COMBINATIONS", 2_000):  # the rest costs only time
        load_sweep(path)


def prompts(draw: random.Random, folder: Path) -> None:
    path = folder / "p.jsonl"
    path.write_bytes(damage.of_lines(draw, _PROMPTS).encode("utf-8", "surrogatepass"))
    if not load_prompts("p.jsonl", folder):
        raise Silent("no prompts")


def task(draw: random.Random, folder: Path) -> None:
    path = folder / "t.jsonl"
    path.write_bytes(damage.of_lines(draw, _TASK).encode("utf-8", "surrogatepass"))
    if not load_task("t.jsonl", folder):
        raise Silent("no questions")


def ledger(draw: random.Random, folder: Path) -> None:
    """The lines' damage, and what a result is made of them."""
    run = _run(folder)
    whole = _ledger(folder)
    data = damage.of_lines(draw, whole).encode("utf-8", "surrogatepass")
    run.trials_file.write_bytes(data)
    try:
        found = run.ledger()
        if len(found.records) != data.count(b"\n"):
            raise Silent("lines are missing")
        if not data.endswith(b"\n") and data and found.note is None:
            raise Silent("a last line that is cut off is not told")
        summarise_run(run)
    finally:
        run.trials_file.write_text(whole)


def cut_ledger(draw: random.Random, folder: Path) -> None:
    """Cut anywhere: every whole line counts, and the rest is told."""
    whole = _ledger(folder).encode()
    data = whole[: draw.randint(0, len(whole))]
    found = parse_ledger(BytesIO(data), folder / "trials.jsonl")
    rest = data.rpartition(b"\n")[2]
    if len(found.records) != data.count(b"\n") or (found.note is not None) != bool(rest):
        raise Silent("a cut ledger")


def wrong_ledger(draw: random.Random, folder: Path) -> None:
    """Lines that are never good: doubled, of a newer format, of another program."""
    lines = _ledger(folder).splitlines(keepends=True)
    at = draw.randrange(len(lines))
    record = json.loads(lines[at])
    match draw.randrange(4):
        case 0:
            lines.insert(draw.randrange(at + 1, len(lines) + 1), lines[at])
        case 1:
            lines[at] = json.dumps({**record, "format": draw.randint(2, 99)}) + "\n"
        case 2:
            lines[at] = json.dumps({"iteration": 3, "loss": 0.5}) + "\n"
        case _:
            del record[draw.choice(["trial", "role", "outcome", "launch_id", "engine", "metrics"])]
            lines[at] = json.dumps(record) + "\n"
    parse_ledger((line.encode() for line in lines), folder / "trials.jsonl")
    raise Silent("a ledger that no specbench wrote")


def run_folder(draw: random.Random, folder: Path) -> None:
    """Files that are gone, empty, folders, garbage or somebody else's."""
    original = _run(folder).path
    path = folder / "damaged"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, path)
    names = ["run.json", "sweep.yaml", "machine.json", "models.json", "comm.json", "trials.jsonl"]
    names += ["samples/0000.jsonl.gz", "samples/0001.jsonl.gz", "samples", "logs", "figures"]
    for name in draw.sample(names, draw.randint(1, 3)):
        _damage_file(draw, path / name)
    run = Run.open(path)
    told = _told(lambda: [run.sweep(), run.machine(), run.configs(), run.ledger()])
    told |= _told(lambda: [summarise_run(run), read_screening(run.comm_file), memory_table(run)])
    if draw.random() < 0.01:
        told |= _told(lambda: [write_report(summarise_run(run))])
    told |= _told(lambda: _lock(run))


def _lock(run: Run) -> None:
    with run.locked():
        pass


def _told(read: Callable[[], Any]) -> bool:
    """Whether it was refused; the next reader is asked all the same."""
    try:
        read()
    except REFUSED as error:
        one_sentence(error)
        return True
    return False


def _damage_file(draw: random.Random, file: Path) -> None:
    what = draw.randrange(6)
    old = file.read_bytes() if file.is_file() else b""
    if file.is_dir():
        shutil.rmtree(file)
    with suppress(FileNotFoundError, NotADirectoryError):
        file.unlink()
    with suppress(FileNotFoundError, NotADirectoryError):  # its folder has gone before
        if what == 0:
            file.mkdir()
        elif what == 1:
            file.write_bytes(b"")
        elif what == 2:
            file.symlink_to("nowhere")
        elif what > 3:
            file.write_bytes(damage.raw(draw, old))


def run_settings(draw: random.Random, folder: Path) -> None:
    run = _run(folder)
    original = run.settings_file.read_text()
    try:
        run.settings_file.write_text(damage.document(draw, original), errors="replace")
        summarise_run(Run.open(run.path))
    finally:
        run.settings_file.write_text(original)


def machine_file(draw: random.Random, folder: Path) -> None:
    run = _run(folder)
    original = run.machine_file.read_text()
    try:
        run.machine_file.write_text(damage.document(draw, original), errors="replace")
        run.machine()
    finally:
        run.machine_file.write_text(original)


def models_file(draw: random.Random, folder: Path) -> None:
    """The models' configs, and what is counted from them."""
    file = folder / "models.json"
    models = json.loads(_MODELS)
    models["target"]["quantization_config"] = draw.choice(_QUANTISED)
    models["target"]["architectures"] = [draw.choice([*DENSE, *SPARSE, *LATENT])]
    file.write_text(damage.document(draw, json.dumps(models)), errors="replace")
    shapes = [read_shape(config) for config in read_configs(file).values()]
    known = [each for each in shapes if not isinstance(each, str)]
    for shape in known:
        target_bytes(shape, 2)
        draft_bytes(shape, known[0], 1, 2)


def comm_file(draw: random.Random, folder: Path) -> None:
    file = folder / "comm.json"
    file.write_text(damage.document(draw, _comm()), errors="replace")
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return
    CommResults.from_json(data, str(file))


def screening_file(draw: random.Random, folder: Path) -> None:
    file = folder / "comm.json"
    file.write_text(damage.document(draw, _screening()), errors="replace")
    read_screening(file)


def samples_file(draw: random.Random, folder: Path) -> None:
    """Damaged lines, or damaged gzip; what is taken gives figures."""
    original = _run(folder).samples_file(1).read_bytes()
    file = folder / "damaged.jsonl.gz"
    if draw.random() < 0.4:
        file.write_bytes(damage.raw(draw, original))
    else:
        text = damage.of_lines(draw, gzip.decompress(original).decode())
        file.write_bytes(gzip.compress(text.encode("utf-8", "surrogatepass"), 1))
    for windows in read_samples(file).values():
        summarise(windows, 2, 1)


def foreign(draw: random.Random, folder: Path) -> None:
    lines = [
        [foreign_files.bench_serving(), foreign_files.bench_serving(False)],
        [foreign_files.bench_speculative(3), foreign_files.bench_speculative(0)],
        [foreign_files.vllm()],
        [foreign_files.specforge()],
    ]
    found = draw.choice(lines)
    text = "".join(json.dumps(each) + "\n" for each in found)
    file = folder / "foreign.jsonl"
    file.write_bytes(damage.of_lines(draw, text).encode("utf-8", "surrogatepass"))
    for run in read_foreign(file):
        for record in run.records:
            speed = record.output_tok_s
            if speed is not None and not 0 < speed < float("inf"):
                raise Silent(f"{speed} tok/s")


def stream(draw: random.Random, folder: Path) -> None:
    """A /generate stream in pieces; what it gives is written, read back and summarised."""
    data = damage.of_lines(draw, _STREAM, _event).encode("utf-8", "surrogatepass")
    if draw.random() < 0.1:
        data = damage.raw(draw, data)
    found, now = TokenStream(), 0.0
    try:
        while data:
            size = draw.randint(1, 400)
            now += 0.01
            found.feed(data[:size], now)
            data = data[size:]
        found.finish(now)
        error = None
    except BadStreamError as failure:
        error = str(failure)
        if "\n" in error or not error:
            raise Silent(f"a message of several lines: {error!r}") from failure
    sample = _sample(found, now, error)
    file = folder / "streamed.jsonl.gz"
    window = Window(1, max(now, 0.01), 0.0, (sample,))
    write_samples(file, {1: [window]})
    if read_samples(file) != {1: [window]}:
        raise Silent("samples are not read back as they were written")
    summarise([window], 2, 1)


def _sample(found: TokenStream, now: float, error: str | None) -> RequestSample:
    return RequestSample(
        prompt_id="p",
        kind="chat",
        sent=0.0,
        chunk_times=tuple(round(at, 6) for at in found.chunk_times),
        chunk_tokens=tuple(found.chunk_tokens),
        ended=round(now, 6),
        finish_reason=found.finish_reason,
        error=error,
        timed_out=False,
        prompt_tokens=found.prompt_tokens,
        engine_tokens=found.engine_tokens,
        requested_tokens=8,
        spec=found.spec,
        engine_figures=found.engine_figures,
        output_ids=found.output_ids,
        text=found.text,
    )


def _event(draw: random.Random, line: str) -> str:
    if not line.startswith("data: {"):
        return damage.text(draw, line)
    return "data: " + damage.document(draw, line.removeprefix("data: "))


def server_answers(draw: random.Random, folder: Path) -> None:
    """/server_info and the other control pages, from a server that is not quite SGLang."""
    api = ServerApi("http://127.0.0.1:1", 1.0)
    status = draw.choice([200] * 8 + [400, 500, 503, 204])
    body = damage.document(draw, draw.choice([_INFO, _GENERATED, _SWITCHED]))
    answer = Answer(status, body.encode("utf-8", "surrogatepass"))
    calls: list[Callable[[], Any]] = [
        lambda: _use(api.server_info()),
        lambda: api.generate_one_token({}),
        lambda: _keep(api.counters(SGLANG.counters), folder),
        lambda: api.set_steps(3),
    ]
    asked = patch("tuner.server.http_api.ask", lambda *_: answer)
    with asked, patch("tuner.server.http_api.SWITCH_RETRY_S", 0.0), patch("time.sleep"):
        for call in calls:
            _told(call)


def _use(info: dict[str, Any]) -> None:
    """What is made of it."""
    running_point(info)
    Identity((), {"served_model_name": "mine", "port": 1}).mismatch(info)
    with patch("tuner.server.gpu_sampler.used_memory", lambda _: {"0": 2**40}):
        find_server_gpus(info, {"0": 0}, {})


def _keep(counters: EngineCounters | None, folder: Path) -> None:
    """The counters of a window go into its samples, which a resumed run needs."""
    if counters is not None:
        window = Window(1, 1.0, 0.0, (), engine=counters)
        write_samples(folder / "counted.jsonl.gz", {1: [window]})
        if read_samples(folder / "counted.jsonl.gz") != {1: [window]}:
            raise Silent("counters are not read back as they were written")


def footprints(draw: random.Random, folder: Path) -> None:
    """What a killed run left beside a log; damaged, it must name no process."""
    file = folder / "0001.running.json"
    mark = pid_file.Footprint(folder / "0001.log", "specbench-of-no-process")
    mark.write()
    file.write_text(damage.document(draw, file.read_text()), errors="replace")
    pid_file.end_left_behind(file)
    if file.exists() and not pid_file.is_another_hosts(file):
        raise Silent("a footprint stays")
    file.unlink(missing_ok=True)


def server_log(draw: random.Random, folder: Path) -> None:
    """Whatever a dying server writes, there is a cause of one line."""
    text = damage.text(draw, damage.text(draw, _LOG)) * draw.choice([1, 1, 3])
    _, cause = cause_of_death(draw.choice([None, 0, 1, 2, 137, -9, -11, -64, 255]), text)
    if not cause or len(cause.splitlines()) != 1:
        raise Silent(f"a cause of several lines: {cause!r}")
    log_tail(text)


def one_sentence(error: Exception) -> None:
    """Raises Silent for a message that is none."""
    said = str(error)
    if not said.strip() or len(said.splitlines()) != 1:
        raise Silent(f"not one line: {said!r}")


TARGETS: dict[Target, int] = {
    sweep_file: 12, prompts: 4, task: 4, ledger: 8, cut_ledger: 3, wrong_ledger: 3, run_folder: 3,
    run_settings: 3, machine_file: 3, models_file: 5, comm_file: 5, screening_file: 4,
    samples_file: 8, foreign: 8, stream: 10, server_answers: 10, footprints: 1, server_log: 6,
}  # fmt: skip
"""With how many of a hundred inputs each gets."""


@cache
def _sweeps() -> list[str]:
    return [path.read_text("utf-8") for path in sorted(Path("sweeps").glob("*.yaml"))]


@cache
def _run(folder: Path) -> Run:
    trials = [Trial(None, 90.0), *(Trial(make_point(n), 100.0 - n) for n in (1, 2, 3))]
    trials.append(Trial(make_point(4), failure="OOM", message="out", outcome="infeasible"))
    return make_run(folder / "runs", trials, sweep=SIMULATED)


@cache
def _ledger(folder: Path) -> str:
    return _run(folder).trials_file.read_text()


@cache
def _comm() -> str:
    return Path("results/comm/h200.json").read_text()


@cache
def _screening() -> str:
    results = CommResults.from_json(json.loads(_comm()), "comm.json")
    return json.dumps(Screening("NCCL", 4096, results, None, 12.5).to_json())


_PROMPTS = (
    '{"prompt": "a"}\n{"id": "x", "kind": "chat", "prompt": "b \\ud83d\\ude00"}\n'
    '{"messages": [{"role": "system", "content": "c"}, {"role": "user", "content": "d"}]}\n'
)
_TASK = (
    '{"question": "How many?", "answer": "Six and one. #### 7"}\n'
    '{"question": "And now?", "answer": "#### 1,200"}\n'
)
_QUANTISED: list[Any] = [
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
    {
        "quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"],
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
    },
    {"quant_method": "awq", "bits": 4, "group_size": 128},
    None,
]  # fmt: skip
_MODELS = json.dumps(
    {
        "target": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
            "head_dim": 128, "tie_word_embeddings": False,
            "n_routed_experts": 8, "num_experts": 8, "num_local_experts": 8,
            "n_shared_experts": 1, "moe_intermediate_size": 64, "kv_lora_rank": 64,
            "q_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
        },
        "draft": {
            "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "vocab_size": 128256,
            "num_hidden_layers": 1, "num_attention_heads": 32, "intermediate_size": 14336,
            "draft_vocab_size": 32000,
        },
    }
)  # fmt: skip
_META = {"id": "r", "prompt_tokens": 7, "weight_version": "default", "cached_tokens": 0}
_STREAM = "\n\n".join(
    [
        *(
            "data: "
            + json.dumps({
                "text": "a" * n, "output_ids": list(range(1, n + 1)),
                "meta_info": {**_META, "completion_tokens": n, "finish_reason": None},
            })
            for n in (1, 3, 5)
        ),
        "data: "
        + json.dumps({
            "text": "a" * 8, "output_ids": list(range(1, 9)),
            "meta_info": {
                **_META, "completion_tokens": 8, "finish_reason": {"type": "length", "length": 8},
                "spec_verify_ct": 4, "spec_num_correct_drafts": 4, "spec_num_proposed_drafts": 8,
                "spec_correct_drafts_histogram": [1, 2, 1], "spec_accept_length": 2.0,
            },
        }),
        "data: [DONE]",
        "",
    ]
)  # fmt: skip
_INFO = json.dumps(
    {
        "model_path": "m", "served_model_name": "mine", "port": 1, "version": "0.5.17",
        "dp_size": 1, "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3,
        "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4, "tp_size": 1,
        "pp_size": 1, "nnodes": 1,
        "speculative_draft_model_path": "d", "skip_tokenizer_init": False,
        "internal_states": [{"avg_spec_accept_length": 2.5, "last_gen_throughput": 90.0}],
    }
)  # fmt: skip
_GENERATED = json.dumps({"text": "a", "meta_info": {"completion_tokens": 1, "finish_reason": None}})
_SWITCHED = json.dumps([{"updated": True, "speculative_num_steps": 3, "reason": None}])
_LOG = (
    "[2026-11-30 06:00:00 TP0] Load weight begin. avail mem=94.21 GB\n"
    "Loading safetensors:  10%|█         | 1/10\rLoading safetensors: 100%|██████████| 10/10\n"
    "[2026-11-30 06:00:09 TP0] Load weight end. elapsed=9.02 s\n"
    "[2026-11-30 06:00:10 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "sglang/srt/managers/scheduler.py", line 498, in __init__\n'
    "    self.init_model_worker()\n"
    "    ^^^^^^^^^^^^^^^^^^^^^^^^\n"
    "ValueError: heads 30 cannot be split over 4\n\n"
    "Received sigquit from a child process. It usually means the child failed.\n"
)
