"""Why a server ended, from its exit status and its log.

The texts are SGLang's, PyTorch's and Hugging Face's as of SGLang 0.5.8 to 0.5.23. A scheduler that
hits an exception prints the traceback and signals its parent, which prints `Received sigquit` and
kills itself: exit status -9, and the cause is the last traceback before that line. What comes after
it (cancelled tasks, interrupted children) is the noise of dying.
"""

import re
import signal
from dataclasses import dataclass

from tuner.core.errors import Failure, one_line
from tuner.server.log_file import clean_lines

TREE_HINT = (
    "the draft tree has fewer nodes than num_draft_tokens asks for; "
    "it may be at most 1 + topk + (num_steps - 1) * topk^2"
)

_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\] ?")
_TRACEBACK = "Traceback (most recent call last):"
_END = "Received sigquit from a child process"
_OWN_KILL = "kill_process_tree"
"""In the line that SGLang writes before it ends itself by SIGKILL."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_KERNEL = " by somebody else: the kernel does so where the machine is out of memory (see dmesg)"
_DYING = re.compile(r"^(\w+\.)*(CancelledError|KeyboardInterrupt|SystemExit|BrokenPipeError)\b")

_PORT = re.compile(r"\[Errno 98\]|EADDRINUSE|address already in use", re.IGNORECASE)
_OOM = re.compile(
    r"\w+ out of memory\b|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|CUDA error: out of memory"
    r"|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|\bOut of memory\. Try to lower|DefaultCPUAllocator: can't allocate memory",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(
    r"\b(increase|raise) --mem-fraction-static|leave no GPU memory|Not enough GPU memory"
    r"|GB HBM is free",
    re.IGNORECASE,
)
"""In the exception that ended it; a warning may say so of a server that goes on."""
_ARGPARSE = re.compile(r"^\S+( \S+)?: error: .*")
_CAPTURE = re.compile(r"\bCapture\b.*\bfailed\b", re.IGNORECASE)
_PLUGIN_REFUSED = re.compile(r"specbench: (draft TP|step switching) refused: ")
_NOT_PATCHED = re.compile(r"specbench: not patched: ")
"""What the plug-in raises (tuner/sglang/plugin/specbench_sglang/problems.py)."""
_TREE = re.compile(r"selected index k out of range")
_LOAD = re.compile(
    r"safetensors?(_rust)?\b|SafetensorError|HFValidationError|RepositoryNotFoundError"
    r"|GatedRepoError|RevisionNotFoundError|LocalEntryNotFoundError|HfHubHTTPError"
    r"|is not a local folder and is not a valid model identifier|does not appear to have a file"
    r"|Cannot find any model weights|Can't load (the|tokenizer|config)|Unrecognized model in"
    r"|couldn't connect to '?https://huggingface|Model architectures? .* (is|are) not supported"
    r"|No such file or directory: .*(config\.json|\.bin|\.pt)|size mismatch for",
    re.IGNORECASE,
)

_CAPTURING_FRAME = re.compile(r"^(_?capture\w*|\w*init\w*_graphs?)$")
_LOADING_FRAME = re.compile(
    r"^(load_model|load_weights?|_load_weights\w*|get_model|_initialize_model|from_pretrained"
    r"|weight_loader|snapshot_download)$"
)
_LOADING_FILE = re.compile(
    r"/huggingface_hub/|/safetensors/|/transformers/(utils/hub|configuration_|tokenization_)"
    r"|/model_loader/"
)
_CONFIG_FILE = re.compile(r"server_args\.py$|/arg_groups/|_hook\.py$|/configs/|/fields/")
_SERVING_FRAME = re.compile(r"event_loop|^forward_batch_generation$")
_CONFIG_ERROR = re.compile(r"^(ValueError|AssertionError|NotImplementedError|TypeError)\b")


@dataclass(frozen=True)
class _Traceback:
    """The innermost part of one printed traceback."""

    frames: tuple[tuple[str, str], ...]
    """File and function, outermost first."""
    statement: str
    """The line of code that raised, "" where the traceback does not show it."""
    error: str
    """The exception's first line."""
    text: str
    """The exception's whole message."""

    def calls(self, function: re.Pattern[str]) -> bool:
        return any(function.search(name) for _, name in self.frames)

    def crosses(self, file: re.Pattern[str]) -> bool:
        return any(file.search(path) for path, _ in self.frames)

    def cause(self) -> str:
        """The exception in one line; a bare one says little, so with where it came from."""
        if ":" in self.error or not self.frames:
            return _one_line(self.error)
        path, function = self.frames[-1]
        place = f"{path.rsplit('/', 1)[-1]}, {function}"
        return _one_line(f"{self.error}: {self.statement} ({place})")


def cause_of_death(exit_status: int | None, log_text: str) -> tuple[Failure, str]:
    """The label and one line that names the cause.

    `exit_status` is the exit code, minus the signal's number, or None for a server that still
    runs and is given up. Memory wins over everything: it ends captures, loads and requests alike.
    """
    lines = clean_lines(log_text)
    end = next((index for index, line in enumerate(lines) if _END in line), len(lines))
    lines = lines[:end]
    fatal = _last_traceback(lines)
    if line := _last(lines, _PLUGIN_REFUSED):
        return Failure.BAD_ARGS, line
    if line := _last(lines, _NOT_PATCHED):
        return Failure.NOT_PATCHED, line
    if line := _last(lines, _OOM):
        return Failure.OOM, line
    if fatal is not None and _NO_ROOM.search(fatal.text):
        return Failure.OOM, fatal.cause()
    if line := _last(lines, _TREE):
        return Failure.GRAPH_CAPTURE, f"{line} ({TREE_HINT})"
    if fatal is not None and (fatal.calls(_CAPTURING_FRAME) or _CAPTURE.search(fatal.text)):
        return Failure.GRAPH_CAPTURE, fatal.cause()
    if line := _last(lines, _PORT):
        return Failure.PORT_IN_USE, line
    if line := _refused_arguments(lines):
        return Failure.BAD_ARGS, line
    if fatal is not None:
        label = _label(fatal)
        if label is Failure.CRASH and _is_loading(lines):
            label = Failure.MODEL_LOAD
        return label, fatal.cause()
    if line := _last(lines, _CAPTURE):
        return Failure.GRAPH_CAPTURE, line
    last = next((_one_line(line) for line in reversed(lines) if line.strip()), "an empty log")
    if exit_status == 1 and _CONFIG_ERROR.match(last):
        return Failure.BAD_ARGS, last
    silent = exit_status in _KILLED and not any(_OWN_KILL in line for line in lines)
    hint = _KERNEL if silent else ""
    return Failure.CRASH, f"{_ending(exit_status)}{hint}, last line: {last}"


def has_port_conflict(log_text: str) -> bool:
    """True where a server that still runs will never answer: 0.5.17 waits for ever after this."""
    return "[Errno 98]" in log_text


def is_dying(log_text: str) -> bool:
    """True once a scheduler has failed: the server ends a moment later, or stays as a shell."""
    return _END in log_text


def _label(fatal: _Traceback) -> Failure:
    if _LOAD.search(fatal.text) or fatal.calls(_LOADING_FRAME) or fatal.crosses(_LOADING_FILE):
        return Failure.MODEL_LOAD
    if not _CONFIG_ERROR.match(fatal.error) or fatal.calls(_SERVING_FRAME):
        return Failure.CRASH
    if fatal.crosses(_CONFIG_FILE):
        return Failure.BAD_ARGS
    # Some combinations are checked only when workers and back ends are built, after loading.
    if any("scheduler" in file and name == "__init__" for file, name in fatal.frames):
        return Failure.BAD_ARGS
    return Failure.CRASH


def _is_loading(lines: list[str]) -> bool:
    begun = sum("Load weight begin" in line for line in lines)
    return begun > sum("Load weight end" in line for line in lines)


def _last_traceback(lines: list[str]) -> _Traceback | None:
    starts = [index for index, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    for start in reversed(starts):
        found = _read_traceback(lines, start + 1)
        if found is not None and not _DYING.match(found.error):
            return found
    return None


def _read_traceback(lines: list[str], index: int) -> _Traceback | None:
    frames: list[tuple[str, str]] = []
    statement = ""
    while index < len(lines) and (lines[index].startswith(" ") or not lines[index].strip()):
        if match := re.match(r'\s+File "(.*)", line \d+, in (.+)', lines[index]):
            frames.append((match[1], match[2]))
            statement = ""
        elif not statement:
            statement = lines[index].strip()
        index += 1
    message = []
    for line in lines[index:]:
        if not line.strip() or _STAMP.match(line) or line.endswith(_TRACEBACK):
            break
        message.append(line)
    if not message:
        return None
    return _Traceback(tuple(frames), statement, message[0], "\n".join(message))


def _refused_arguments(lines: list[str]) -> str | None:
    for index, line in reversed(list(enumerate(lines))):
        if _ARGPARSE.match(line) and any(each.startswith("usage:") for each in lines[:index]):
            return _one_line(line)
    return None


def _last(lines: list[str], pattern: re.Pattern[str]) -> str | None:
    return next((_one_line(line) for line in reversed(lines) if pattern.search(line)), None)


def _ending(exit_status: int | None) -> str:
    if exit_status is None:
        return "gave no answer"
    if exit_status < 0:
        return f"ended by {_signal_name(-exit_status)}"
    if exit_status - 128 in set(signal.Signals):  # as a shell or docker reports it
        return f"ended by {_signal_name(exit_status - 128)}"
    return f"exit status {exit_status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _one_line(line: str) -> str:
    text = one_line(_STAMP.sub("", line).strip())
    return text if len(text) <= 300 else f"{text[:297]}..."
