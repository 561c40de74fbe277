"""models.json: the config.json of a run's models, so that its report can be written anywhere.

`{"target": {...}, "draft": {...}}`, each as it was when a server of the run could read it. What was
not there, such as a model that the first server fetched, is added when the run ends.
"""

import os
from pathlib import Path

from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.core.files import read_json, write_json
from tuner.sglang.memory.model_shape import Configs, configs_here
from tuner.sglang.models import Role
from tuner.sglang.revisions import ModelFacts, sweep_as_begun

ROLES: tuple[Role, ...] = ("target", "draft")


def keep_configs(file: Path, sweep: Sweep, begun: ModelFacts) -> None:
    """Add to `file` what is here and not in it yet; what is in it stays as it is.

    `begun` is what the models were when the run began: their commits, not what `main` is by now.
    Only SGLang's servers read models. Raises UserError where it cannot be read or written.
    """
    if not sweep.engine.uses_gpus:
        return
    kept = read_configs(file)
    if len(kept) == (1 if sweep.model.draft is None else 2):
        return
    both = {**configs_here(sweep_as_begun(sweep, begun, os.environ)), **kept}
    if both.keys() == kept.keys():
        return
    try:
        write_json(file, both, ascii_only=True)  # a config.json may hold what UTF-8 cannot
    except OSError as error:
        message = f"this cannot be written: {error.strerror}, give a run that can be"
        raise UserError(message, file) from error


def read_configs(file: Path) -> Configs:
    """What `keep_configs` wrote; {} where a run has none. Raises UserError where it is broken."""
    try:
        data = read_json(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{error.strerror}, restore it", file) from error
    except (ValueError, RecursionError) as error:
        raise UserError("this is not JSON, restore it or delete it", file) from error
    if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
        raise UserError("this is no object of objects, restore it or delete it", file)
    return {role: data[role] for role in ROLES if role in data}
