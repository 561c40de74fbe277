"""Speaks as tuner/sglang/nccl/child.py does, without torch. NCCL_FAKE in its environment says how.

hang: not ready; hang-turn: never done; die: ends before it is ready; refuse: has no torch.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

MARK = "SPECBENCH_COMM "


def say(**facts: object) -> None:
    print(MARK + json.dumps(facts), flush=True)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.002)


def main() -> None:
    order, how = json.loads(sys.argv[2]), os.environ.get("NCCL_FAKE", "")
    folder = Path(order["folder"])
    if dump := os.environ.get("FAKE_DUMP"):
        seen = {k: v for k, v in os.environ.items() if k.startswith(("NCCL_", "CUDA_"))}
        with Path(dump).open("a") as file:
            file.write(json.dumps(seen) + "\n")
    if how == "refuse":
        say(refused="this python has no torch")
        sys.exit(3)
    say(stage="imported")
    if how == "die":
        print("noise\nncclInternalError: Internal check failed", flush=True)
        sys.exit(7)
    if how == "hang":
        subprocess.run([sys.executable, "-c", "import time; time.sleep(100)"])
    say(stage="ready", backend="NCCL 9", device="fake", torch="0")
    wait_for(folder / "turn")
    if how == "hang-turn":
        time.sleep(100)
    us = {"LL": 5.0, "Simple": 20.0}.get(os.environ.get("NCCL_PROTO", ""), 10.0)
    for numel, ranks in order["sizes"]:
        say(numel=numel, ranks=ranks, us=[us, us, 9 * us], graphs=True, why=None)
    say(stage="done")
    wait_for(folder / "leave")


main()
