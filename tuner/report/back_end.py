"""Whether NCCL settings could have had an effect, by what the servers' logs say."""

from collections import Counter

from tuner.engine.sglang.all_reduce import THROUGH_NCCL, logged_backend
from tuner.ledger.record import TrialRecord
from tuner.report.findings import Findings
from tuner.report.text import count


def nccl_doubt(findings: Findings) -> str | None:
    """That the space's NCCL settings had no effect, in one sentence; None where they had.

    None too where no log says what carried the all-reduces.
    """
    names = {name for name in findings.sweep.space.env if name.startswith("NCCL_")}
    if not names:
        return None
    launches = {r.launch_id for r in findings.records if _sets(r, names) and r.outcome == "ok"}
    found = Counter(
        logged_backend(log)
        for launch, log in findings.run.log_files().items()  # many may be gone
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
