"""A machine with two GPUs and SGLang on it, played: to be put in front on PYTHONPATH.

`pynvml` shows the GPUs, `sglang.launch_server` is the simulated server, which holds memory of the
GPUs that it sees while it lives. What they share is in the folder PLAYED_GPUS.
"""
