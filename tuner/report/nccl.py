"""What the stage comm found of each communication setting, and what became of it."""

from collections import Counter

from tuner.analysis.summary import RunSummary
from tuner.core.errors import UserError
from tuner.core.formatting import MISSING, count, duration
from tuner.core.markdown import code, escaped, markdown_table
from tuner.runs.records import TrialRecord
from tuner.server.all_reduce import CommResults, SettingResult
from tuner.sglang.log_parser import THROUGH_NCCL, logged_backend
from tuner.sglang.nccl.selection import Screening, read_screening


def describe_screening(summary: RunSummary) -> list[str]:
    """Paragraphs for "How it was searched"; [] where the run has no such stage.

    A broken comm.json is said and takes nothing else from the report, which rests on the ledger.
    """
    try:
        screening = read_screening(summary.run.comm_file)
    except UserError as error:
        return [f"What was found of communication settings cannot be shown: {escaped(error)}."]
    if screening is None:
        return []
    begin = "The baseline's log does not say what carried its all-reduces."
    if screening.back_end is not None:
        begin = f"The baseline's all-reduces were carried by {escaped(screening.back_end)}."
    if screening.results is None:
        return [f"{begin} Communication settings were not timed: "
                f"{escaped(screening.not_measured or MISSING)}."]  # fmt: skip
    return [
        f"{begin} {_how(screening.results, screening.seconds)}",
        _table(screening, screening.results),
        *(f"Note: {escaped(note)}." for note in screening.results.notes),
    ]


def _how(results: CommResults, seconds: float | None) -> str:
    took = f", in {duration(seconds)}" if seconds and not results.simulated else ""
    return (
        f"Then all-reduces were timed under {count(len(results.measured), 'setting')} over "
        f"{results.tp} ranks ({escaped(results.backend)}, {escaped(results.device)}){took}:"
    )


def _table(screening: Screening, results: CommResults) -> str:
    assert screening.screened is not None
    rows = {each.setting: each for each in results.measured}
    ranked, shown = screening.screened.ranked(), screening.screened.shown
    # The last one may be a small one, of a draft's own group.
    by_size = sorted(range(len(results.messages)), key=lambda at: results.messages[at].elements)
    smallest, largest = by_size[0], by_size[-1]
    labels = (results.messages[at].label() for at in (smallest, largest))
    header = ["setting", *(f"\u00b5s, {label}" for label in labels), "verdict"]
    table = markdown_table(
        header,
        [
            [
                code(setting.label()),
                _latency(rows[setting], smallest),
                _latency(rows[setting], largest),
                escaped(screening.screened.verdict(setting)),
            ]
            for setting in shown
        ],
        4,
    )
    if (more := len(ranked) - len(shown)) > 0:
        table += f"\n\n{count(more, 'setting')} more, none worth a server; `comm.json` has all."
    return table


def _latency(row: SettingResult, place: int) -> str:
    return MISSING if row.failure is not None else f"{row.latency(place).value:.1f}"


def nccl_warning(summary: RunSummary) -> str | None:
    """That the space's NCCL settings had no effect, in one sentence; None where they had.

    None too where no log says what carried the all-reduces.
    """
    names = {name for name in summary.sweep.space.env if name.startswith("NCCL_")}
    if not names:
        return None
    launches = {
        r.launch_id for r in summary.ledger.records if _sets(r, names) and r.outcome == "ok"
    }
    found = Counter(
        logged_backend(log)
        for launch, log in summary.run.log_files().items()  # many may be gone
        if launch in launches
    )
    past = {name: n for name, n in found.items() if name not in THROUGH_NCCL and name is not None}
    if not past:
        return None
    where = " and ".join(f"{name} in {count(n, 'server')}" for name, n in past.items())
    if sum(past.values()) < len(launches):
        return (
            "NCCL settings had no effect on all-reduces in some servers: of "
            f"{len(launches)} that set them the logs show {where}"
        )
    return (
        f"NCCL settings had no effect on all-reduces here: the logs show {where} in place of NCCL, "
        "so differences between such settings are noise, or the gathering of logits "
        "(disable-custom-all-reduce brings NCCL into use)"
    )


def _sets(record: TrialRecord, names: set[str]) -> bool:
    return record.point is not None and not names.isdisjoint(record.point["env"])
