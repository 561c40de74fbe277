"""The simulated server as a real process: what it answers, when, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise

import psutil
import pytest
import requests

KIMI = "kimi-k2.5-8x-rtx-pro-6000"
PATIENCE_S = 40.0


class Played:
    """One simulated server; `with` waits until it is up, and leaves no process behind."""

    def __init__(self, folder, *words, env=None, until="fired up and ready to roll"):
        self.log_path = folder / "server.log"
        self._words, self._env, self._until = words, env or {}, until

    def __enter__(self):
        command = [sys.executable, "-m", "tuner.simulator", "--port", "0", *self._words]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **self._env}
            )
        try:
            self.wait_for(self._until)
        except BaseException:
            self.__exit__()
            raise
        found = re.search(r"Uvicorn running on (http://\S+)", self.log)
        self.url = found[1] if found else None
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    @property
    def log(self):
        return self.log_path.read_text()

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE_S
        while text not in self.log:
            assert self.process.poll() is None, f"it ended: {self.log}"
            assert time.monotonic() < end, f"no '{text}' in {self.log}"
            time.sleep(0.02)

    def wait(self):
        return self.process.wait(timeout=PATIENCE_S)

    def get(self, path, **kwargs):
        return requests.get(self.url + path, timeout=PATIENCE_S, **kwargs)

    def post(self, path, body, **kwargs):
        return requests.post(self.url + path, json=body, timeout=PATIENCE_S, **kwargs)

    def generate(self, tokens=16, **body):
        return self.post("/generate", generate_body(tokens, **body))

    def stream(self, tokens=16, **body):
        """The events of a streamed answer and their arrival times; `[DONE]` is checked."""
        with self.post("/generate", generate_body(tokens, stream=True, **body), stream=True) as got:
            lines = [(time.monotonic(), line) for line in got.iter_lines(chunk_size=None) if line]
        assert lines.pop()[1] == b"data: [DONE]"
        return [json.loads(line.removeprefix(b"data: ")) for _, line in lines], [
            t for t, _ in lines
        ]


def generate_body(tokens, **body):
    prompt = {} if "input_ids" in body or "text" in body else {"text": "How are you?"}
    params = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {**prompt, "sampling_params": params, **body}


def speculative(steps, topk=1, tokens=None):
    return (
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "draft"),
        *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk)),
        *("--speculative-num-draft-tokens", str(tokens or steps + 1)),
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with speculation that many tests share; they leave it idle."""
    words = (*speculative(3), "--model-path", "some/model", "--decode-log-interval", "1")
    words += ("--mem-fraction-static", "0.7", "--moe-runner-backend", "triton", "--some-switch")
    with Played(tmp_path_factory.mktemp("served"), *words) as server:
        yield server


def test_streamed_answer_has_the_fields_and_counts_of_0_5_17(served):
    """A client that sums chunks must come to the engine's own counts."""
    events, _ = served.stream(64)
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert counts[-1] == 64
    for before, after in pairwise(events):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert before["meta_info"]["finish_reason"] is None
        assert "spec_verify_ct" not in before["meta_info"]
    last, meta = events[-1], events[-1]["meta_info"]
    assert len(last["output_ids"]) == 64
    assert meta["finish_reason"] == {"type": "length", "length": 64}
    assert meta["e2e_latency"] > 0
    histogram, correct, verifies = (
        meta["spec_correct_drafts_histogram"],
        meta["spec_num_correct_drafts"],
        meta["spec_verify_ct"],
    )
    assert sum(histogram) == verifies >= len(events) - 1
    assert sum(k * n for k, n in enumerate(histogram)) == correct
    assert 64 <= 1 + verifies + correct <= 64 + 3
    assert meta["spec_accept_length"] == 64 / verifies
    assert meta["spec_num_proposed_drafts"] == 3 * verifies
    assert meta["spec_accept_rate"] == correct / (3 * verifies)
    assert meta["spec_accepted_drafts"] == correct
    assert meta["spec_accept_histogram"] == histogram


def test_whole_answers_for_texts_ids_and_lists(served):
    one = served.generate(8, input_ids=[5, 6, 7]).json()
    assert one["meta_info"]["prompt_tokens"] == 3
    assert len(one["output_ids"]) == one["meta_info"]["completion_tokens"] == 8
    many = served.generate(8, text=["a", "b"]).json()
    assert [len(answer["output_ids"]) for answer in many] == [8, 8]
    events, _ = served.stream(8, input_ids=[[1, 2], [3]])
    assert {event["index"] for event in events} == {0, 1}


def test_the_same_prompt_gives_the_same_tokens(served):
    first, second, other = (served.generate(20, text=text).json() for text in ("x", "x", "other"))
    assert first["output_ids"] == second["output_ids"] != other["output_ids"]


def test_without_ignore_eos_a_request_stops_by_itself(served):
    """At the same length each time."""
    body = generate_body(2000, sampling_params={"max_new_tokens": 2000})
    lengths = set()
    for _ in range(2):
        meta = served.post("/generate", body).json()["meta_info"]
        assert meta["finish_reason"]["type"] == "stop"
        lengths.add(meta["completion_tokens"])
    assert len(lengths) == 1


@pytest.mark.parametrize(
    "body", ["{", "[]", "{}", '{"text": "a", "sampling_params": {"max_new_tokens": -1}}']
)
def test_bad_bodies_are_400(served, body):
    assert requests.post(served.url + "/generate", data=body, timeout=9).status_code == 400


def test_what_the_server_says_about_itself(served):
    """The harness checks that it talks to its own server by these."""
    served.generate(16)
    info = served.get("/server_info").json()
    assert info["version"] == "0.5.17"
    assert info["model_path"] == info["served_model_name"] == "some/model"
    assert info["speculative_num_draft_tokens"] == 4
    assert info["mem_fraction_static"] == 0.7
    assert info["moe_runner_backend"] == "triton"
    assert info["some_switch"] is True
    assert 1 < info["internal_states"][0]["avg_spec_accept_length"] < 4
    assert info["internal_states"][0]["last_gen_throughput"] > 0
    assert info["simulated"]["preset"] == "quickstart"
    assert info["simulated"]["launch_s"] > 60
    assert served.get("/get_server_info").json()["port"] == info["port"]
    assert served.get("/model_info").json()["model_path"] == "some/model"
    assert served.get("/v1/models").json()["data"][0]["id"] == "some/model"
    assert "sglang:spec_accept_length" in served.get("/metrics").text
    assert served.get("/health").status_code == 200
    assert served.get("/health_generate").status_code == 200
    assert served.get("/no-such-route").status_code == 404


def test_the_log_reads_like_sglangs(served):
    for words in (
        "server_args=ServerArgs(model_path=", "Load weight begin.", "Load weight end.",
        "KV Cache is allocated.", "Capture target verify CUDA graph begin.",
        "Capture draft decode CUDA graph end.", "Engine startup timings (s): load_weight=",
        "Decode batch, #running-req: 1", "accept len: ", "gen throughput (token/s): ",
    ):  # fmt: skip
        assert words in served.log
    assert "All Reduce config" not in served.log


def test_flush_cache_is_refused_while_requests_run(served):
    with served.post("/generate", generate_body(5000, stream=True), stream=True) as got:
        lines = got.iter_lines()  # held: a generator that is dropped closes the connection
        next(lines)
        assert served.get("/flush_cache").status_code == 400
    # The client has left: its request ends, and the server is idle again.
    assert served.post("/flush_cache?timeout=20", {}).status_code == 200
    assert "avg_spec_accept_length" not in served.get("/server_info").json()["internal_states"][0]


def test_cached_prompts_say_so_until_a_flush(served):
    prompt = {"text": "Say this twice, please."}
    served.generate(2, **prompt)
    assert served.generate(2, **prompt).json()["meta_info"]["cached_tokens"] > 0
    served.get("/flush_cache")
    assert served.generate(2, **prompt).json()["meta_info"]["cached_tokens"] == 0


def test_abort_request_ends_it(served):
    body = generate_body(5000, stream=True, rid="mine")
    with served.post("/generate", body, stream=True) as got:
        lines = got.iter_lines()
        next(lines)
        served.post("/abort_request", {"rid": "mine"})
        events = [line for line in lines if line.startswith(b"data: {")]
    assert json.loads(events[-1][6:])["meta_info"]["finish_reason"]["type"] == "abort"


def test_openai_routes(served):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12}
    body |= {"ignore_eos": True, "return_meta_info": True}
    whole = served.post("/v1/chat/completions", body).json()
    assert whole["usage"]["completion_tokens"] == 12
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["meta_info"]["spec_verify_ct"] > 0
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with served.post("/v1/chat/completions", body, stream=True) as got:
        lines = [line for line in got.iter_lines() if line]
    assert lines.pop() == b"data: [DONE]"
    events = [json.loads(line[6:]) for line in lines]
    assert events[-1]["usage"]["completion_tokens"] == 12
    text = "".join(e["choices"][0]["delta"]["content"] for e in events if e["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    plain = {"prompt": "Hi", "max_tokens": 12, "ignore_eos": True}
    assert served.post("/v1/completions", plain).json()["usage"]["completion_tokens"] == 12


def test_real_time_follows_the_model(tmp_path):
    """5 steps on the published machine: 26.18 ms a cycle, over HTTP, within 3 %."""
    with Played(tmp_path, "--preset", KIMI, *speculative(5)) as server:
        ratios = []
        # A busy machine may be late at one end of one request; it cannot be early.
        for _ in range(3):
            _, times = server.stream(64)
            ratios.append(1000 * (times[-1] - times[0]) / (len(times) - 1) / 26.18)
            if abs(ratios[-1] - 1) < 0.03:
                return
    pytest.fail(f"cycles took {ratios} of what the model says")


def test_simulated_accept_length_and_queue(tmp_path):
    """SGLANG_SIMULATE_ACC_LEN is exact; beyond max_running_requests requests wait."""
    env = {"SGLANG_SIMULATE_ACC_LEN": "3"}
    words = ("--preset", "h200x2-llama8b", *speculative(3), "--max-running-requests", "1")
    with Played(tmp_path, *words, env=env) as server:
        assert "All Reduce config: " in server.log
        answers = server.generate(31, text=["a", "b"]).json()
        for answer in answers:
            assert answer["meta_info"]["spec_correct_drafts_histogram"] == [0, 0, 10]
        assert "#queue-req: 1" in server.log
        assert "Prefill batch, #new-seq: 2" not in server.log


def test_no_speculation_says_nothing_about_it(tmp_path):
    with Played(tmp_path) as server:
        meta = server.generate(8).json()["meta_info"]
        assert not [key for key in meta if key.startswith("spec_")]
        assert server.get("/server_info").json()["speculative_algorithm"] is None
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0


def test_sigterm_drains_and_ends_by_sigkill(tmp_path):
    with Played(tmp_path) as server:
        with server.post("/generate", generate_body(60, stream=True), stream=True) as got:
            lines = got.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line.startswith(b"data: {")]
        assert json.loads(rest[-1][6:])["meta_info"]["completion_tokens"] == 60
        assert server.wait() == -signal.SIGKILL


def test_server_ends_with_the_process_that_started_it(tmp_path):
    """A harness that is killed must not leave its servers behind."""
    script = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'tuner.simulator', '--port', '0']\n"
        "child = subprocess.Popen(command)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        child = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline()  # the server's first word
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    with suppress(psutil.NoSuchProcess):
        child.wait(timeout=PATIENCE_S)
    assert not child.is_running()


ENDS = [
    (("--fault", "die-loading"), -9, "Received sigquit from a child process"),
    (("--fault", "oom-load"), -9, "Not enough memory. Please try to increase --mem-fraction-stat"),
    (("--fault", "oom-capture"), -9, "Capture cuda graph failed: CUDA out of memory"),
    (("--fault", "capture-failed"), -9, "selected index k out of range"),
    (speculative(2, topk=2, tokens=8), -9, "selected index k out of range"),
    (("--fault", "bad-args"), 2, "usage: "),
    (("--tp", "many"), 2, "argument --tp-size/--tp/--tensor-parallel-size: invalid int value"),
    (("--override", "aceptance=1"), 2, "has no number 'aceptance'"),
    (("--fault", "no-such"), 2, "there is no fault 'no-such'"),
]


@pytest.mark.parametrize(("words", "status", "says"), ENDS)
def test_launches_that_end(words, status, says):
    """Each death leaves the status and the words by which the harness names it."""
    ended = subprocess.run(
        [sys.executable, "-m", "tuner.simulator", "--port", "0", *words],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == status
    assert says in ended.stderr


def test_draft_tp_that_does_not_divide_is_refused():
    ended = subprocess.run(
        [sys.executable, "-m", "tuner.simulator", *speculative(2)],
        capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "SPECBENCH_DRAFT_TP": "3"},
    )  # fmt: skip
    assert ended.returncode == 1
    assert "SPECBENCH_DRAFT_TP=3 does not divide" in ended.stderr


def test_taken_port_hangs_after_loading(tmp_path):
    """Also without the fault, when somebody really has the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("--port", str(taken.getsockname()[1]))
        with Played(tmp_path, *words, until="address already in use") as server:
            assert "[Errno 98] error while attempting to bind on address" in server.log
            assert server.process.poll() is None


def test_hang_loading_stays(tmp_path):
    with Played(tmp_path, "--fault", "hang-loading", until="Load weight begin") as server:
        assert server.process.poll() is None
        assert "Load weight end" not in server.log


def test_hang_after_stops_producing_and_stays(tmp_path):
    with Played(tmp_path, "--fault", "hang-after=10") as server:
        assert server.generate(4).status_code == 200
        with pytest.raises(requests.Timeout):
            requests.post(server.url + "/generate", json=generate_body(50), timeout=1)
        assert server.get("/health").status_code == 503
        assert server.process.poll() is None


def test_die_after_ends_mid_stream(tmp_path):
    with Played(tmp_path, "--fault", "die-after=20") as server:
        with pytest.raises(requests.RequestException):
            server.stream(50)
        assert server.wait() == -signal.SIGKILL


def test_faulty_answers(tmp_path):
    """After one good request each."""
    with Played(tmp_path, "--fault", "garbage-json=1", "wrong-server") as server:
        assert server.generate(4).json()["meta_info"]["completion_tokens"] == 4
        with pytest.raises(ValueError):
            server.generate(4).json()
        assert server.get("/server_info").json()["model_path"] != "simulated/target"


@pytest.mark.parametrize(
    ("fault", "most"), [("truncated-json", None), ("no-tokens", 0), ("short-stream", 8)]
)
def test_faulty_streams(tmp_path, fault, most):
    with Played(tmp_path, "--fault", fault) as server:
        if most is None:
            with pytest.raises(ValueError):
                server.stream(16)
        else:
            got, _ = server.stream(16)
            assert len(got) <= most
            assert bool(got) == bool(most)
            assert all(event["meta_info"]["finish_reason"] is None for event in got)


def test_orphan_child_outlives_the_server_and_carries_its_environment(tmp_path):
    env = {"SPECBENCH_TEST_MARK": tmp_path.name}
    with Played(tmp_path, "--fault", "orphan-child", env=env) as server:
        orphan = psutil.Process(int(re.search(r"its own session, pid=(\d+)", server.log)[1]))
    try:
        assert os.getsid(orphan.pid) == orphan.pid
        assert orphan.environ()["SPECBENCH_TEST_MARK"] == tmp_path.name
        orphan.terminate()
        with pytest.raises(psutil.TimeoutExpired):
            orphan.wait(timeout=0.3)
    finally:
        orphan.kill()
        with suppress(psutil.NoSuchProcess):
            orphan.wait(timeout=PATIENCE_S)
