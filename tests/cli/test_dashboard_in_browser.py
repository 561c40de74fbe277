"""`specbench dashboard` as a person meets it: the page is opened and the best trial found."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.browser import chromium
from tests.factories import Trial, make_hostile_run, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.report.report import write_report
from tuner.runs.run import Run

LOG = "<script>alert(1)</script> The server is fired up"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@contextmanager
def dashboard(run: Run) -> Iterator[str]:
    """The address of a dashboard of the run, in a process that ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tuner", "dashboard", str(run.path), "--port", port]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, "the dashboard ended"
            try:
                urlopen(f"{address}/api/studies").close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def page_of(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page, and what it complained of or fetched from elsewhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, trouble = context.new_page(), list[str]()
    page.set_default_timeout(60_000)  # a busy machine draws slowly
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request",
        lambda asked: None if "//127.0.0.1:" in asked.url else trouble.append(asked.url[:80]),
    )
    try:
        yield page, trouble
    finally:
        context.close()


def test_the_best_trial_is_found_with_its_reason_command_and_log(
    browser: Any, tmp_path: Path
) -> None:
    """Who watches a search wants its best point, what it took and what its server said."""
    words = ["python", "-m", "sglang.launch_server", "--speculative-num-steps", "3"]
    command = {"argv": words, "env": {"NCCL_PROTO": "LL"}, "unset": []}
    run = make_run(
        tmp_path,
        [
            Trial(None, 90.0),
            Trial(make_point(2), 95.0),
            Trial(make_point(3, env=(("NCCL_PROTO", "LL"),)), 130.0, command=command),
            Trial(make_point(6), outcome="infeasible", failure="OOM", message="no memory is left"),
        ],
    )
    run.log_file(2).write_text(LOG)
    write_report(summarise_run(run))
    with dashboard(run) as address, page_of(browser) as (page, trouble):
        page.goto(f"{address}/dashboard")
        page.get_by_text(run.id).first.click()
        best = page.get_by_text("Best Trial (number=2)")
        best.wait_for()
        assert page.get_by_text("num_steps: 3").count()
        assert page.get_by_text("figures/speedup.png").count() == 1
        page.get_by_role("link", name="Details").first.click()
        note = page.get_by_text("times the baseline").first
        note.wait_for()
        speedup = run.records()[2].metrics["1"]["speedup"]
        assert f"{speedup:.3f} times the baseline" in note.inner_text()
        assert page.get_by_text("--speculative-num-steps").count()
        assert page.get_by_text("c1.output_tok_s ").count()
        log = page.get_by_role("link", name="logs/0002.log").get_attribute("href")
        page.goto(f"{address}{log}")
        assert page.locator("body").inner_text() == LOG
        page.goto(f"{address}/dashboard/studies/1/trials?numbers=3")
        page.get_by_text("It cannot be served: OOM.").wait_for()
        with urlopen(f"{address}/api/studies/1") as answer:  # what its plots go by
            shown = json.load(answer)["trials"]
        assert [trial["constraints"] for trial in shown] == [[0.0], [0.0], [0.0], [1.0]]
        assert trouble == []


def test_what_a_run_holds_does_nothing_in_the_page(browser: Any, tmp_path: Path) -> None:
    """A model's name, a variable or a server's last words could be anything."""
    run = make_hostile_run(tmp_path)
    run.log_file(1).write_text(LOG)
    with dashboard(run) as address, page_of(browser) as (page, trouble):
        places = {
            "": "Best Trial (number=",
            "/note": "The answer so far:",
            "/trials?numbers=0": "The baseline: no speculation.",
            **{f"/trials?numbers={number}": "A candidate." for number in (1, 2, 3)},
        }
        for part, words in places.items():
            page.goto(f"{address}/dashboard/studies/1{part}")
            page.get_by_text(words).first.wait_for()
            page.wait_for_load_state("networkidle")
        page.get_by_text("It failed: OOM.").wait_for()
        assert trouble == []
