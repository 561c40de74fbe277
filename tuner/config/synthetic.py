"""What makes a run another thing than the model that it names."""

from collections.abc import Mapping

from tuner.config.schema import Sweep

SIMULATED_ACCEPTANCE = "SGLANG_SIMULATE_ACC_LEN"
_WEIGHTS = ("load-format", "speculative-draft-load-format")


def artificial(sweep: Sweep, inherited: Mapping[str, str]) -> list[str]:
    """Dummy weights and simulated acceptance, in words; `inherited` is specbench's environment."""
    found = [
        f"--{name} dummy: random weights"
        for name in _WEIGHTS
        if sweep.server.flags.get(name) == "dummy"
    ]
    places = (sweep.server.env, sweep.space.env, inherited)
    if any(SIMULATED_ACCEPTANCE in names for names in places):
        value = {**inherited, **sweep.server.env}.get(SIMULATED_ACCEPTANCE, "...")
        found.append(f"{SIMULATED_ACCEPTANCE}={value}: SGLang pretends the acceptance")
    return found


def no_output_to_compare(sweep: Sweep, inherited: Mapping[str, str]) -> str | None:
    """Why outputs say nothing of a configuration; None where greedy outputs are the model's own.

    A draft with random weights is no reason: whatever is drafted, the target decides.
    """
    if sweep.workload.temperature != 0:
        return f"temperature {sweep.workload.temperature:g}"
    return made_up(sweep, inherited)


def made_up(sweep: Sweep, inherited: Mapping[str, str]) -> str | None:
    """Why no answer of this sweep's servers is the model's own; None where they are."""
    settings = (sweep.server, sweep.baseline)
    if any(each.flags.get("load-format") == "dummy" for each in settings) or (
        "dummy" in sweep.space.flags.get("load-format", [])
    ):
        return "load-format dummy: random weights, whose tokens are all but equally likely"
    places = (sweep.server.env, sweep.baseline.env, sweep.space.env, inherited)
    if any(SIMULATED_ACCEPTANCE in names for names in places):
        return f"{SIMULATED_ACCEPTANCE} is set: SGLang makes tokens up"
    return None


FLAG = "trust-remote-code"


def trusted_code(sweep: Sweep) -> str | None:
    """What plans and reports say where the sweep file sets `trust-remote-code`; None else.

    Nothing but the sweep file does: specbench never adds the flag.
    """
    alone = sweep.server.flags.get(FLAG), sweep.baseline.flags.get(FLAG)
    if True not in (*alone, *sweep.space.flags.get(FLAG, [])):
        return None
    models = " and ".join(name for name in (sweep.model.target, sweep.model.draft) if name)
    return f"{FLAG} is on: Python code in the files of {models} is run here"
