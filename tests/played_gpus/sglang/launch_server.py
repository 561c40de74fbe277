"""The simulated server, which holds a place on its GPU."""

import json
import os
import sys
from pathlib import Path

from tuner.simulator.__main__ import main

if __name__ == "__main__":
    visible = [int(each) for each in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")][:1]
    part = Path(os.environ["PLAYED_GPUS"]) / f"{os.getpid()}.part"
    part.write_text(json.dumps(visible))
    part.rename(part.with_suffix(".server"))
    sys.exit(main())
