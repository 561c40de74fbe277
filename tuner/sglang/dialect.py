"""SGLang's side of a server's life, for the launches of the real and the simulated engine."""

from tuner.loadgen.client import GENERATE
from tuner.server.base import Dialect
from tuner.sglang import flags
from tuner.sglang.failure_diagnosis import cause_of_death, has_port_conflict, is_dying
from tuner.sglang.step_switching import STEPS_VARIABLE, SWITCH_VARIABLE, read_counters

SGLANG = Dialect(
    identity=flags.identity,
    environment=flags.environment,
    own_variables=flags.OWN_VARIABLES | {SWITCH_VARIABLE, STEPS_VARIABLE},
    server_words=flags.server_arguments,
    diagnose=cause_of_death,
    has_port_conflict=has_port_conflict,
    is_dying=is_dying,
    counters=read_counters,
    api=GENERATE,
)
