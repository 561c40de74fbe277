"""Start of a server: its phases in SGLang's words, slept at a scale, and its early failures."""

import asyncio
import os
import signal

from tuner.simulator.arguments import Arguments
from tuner.simulator.faults import die_in_scheduler
from tuner.simulator.log import log


async def play(arguments: Arguments) -> float:
    """Load and capture. Returns the model-time seconds from launch to ready, warm-up included.

    Does not return if the configuration or a fault kills the server.
    """
    return await _StartUp(arguments).run()


class _StartUp:
    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._faults = arguments.faults
        self._times = arguments.performance.machine.startup
        self._spent = 0.0

    async def run(self) -> float:
        args = ", ".join(f"{k}={v!r}" for k, v in self._arguments.server_args.items())
        log(f"server_args=ServerArgs({args})")
        await asyncio.sleep(self._faults.value("slow-start") or 0.0)
        await self._init()
        await self._load()
        await self._allocate()
        captured = await self._capture()
        log(
            f"Engine startup timings (s): load_weight={self._times.load_weight_s:.2f}, "
            f"kv_cache_allocation={self._times.kv_cache_s:.2f}, "
            f"scheduler_e2e={self._spent:.2f}, cuda_graph={{prefill=0.00, {captured}}}, "
            f"tokenizer_e2e={self._spent:.2f}"
        )
        return self._spent + self._times.warmup_s

    async def _take(self, seconds: float) -> None:
        self._spent += seconds
        await asyncio.sleep(seconds * self._arguments.startup_scale)

    async def _init(self) -> None:
        log("Init torch distributed begin.", 0)
        if self._faults.has("nccl-port-taken"):
            self._die(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on "
                "any local network address. port: 29500, useIpv6: false, code: -98, "
                "name: EADDRINUSE, message: address already in use"
            )
        await self._take(self._times.init_s)
        log("sglang is using nccl==2.28.9", 0)
        if self._arguments.performance.has_custom_all_reduce:
            log(
                "All Reduce config: symmetric_memory = 80.01 MB, local_buffer = 2.00 MB, "
                "multicast = False",
                0,
            )
        log("Init torch distributed ends. elapsed=1.08 s, mem usage=1.07 GB", 0)

    async def _load(self) -> None:
        log("Load weight begin. avail mem=94.21 GB", 0)
        if self._faults.has("hang-loading"):
            await asyncio.Event().wait()
        await self._take(self._times.load_weight_s)
        self._kill("killed-loading")
        if self._faults.has("die-loading"):
            self._die("RuntimeError: the checkpoint's shard 3 cannot be read")
        weight = self._arguments.performance.machine.weight_gb
        log(
            f"Load weight end. elapsed={self._times.load_weight_s:.2f} s, type=Simulated, "
            f"mem usage={weight:.2f} GB.",
            0,
        )
        speculation = self._arguments.performance.speculation
        if speculation is not None and speculation.algorithm != "NGRAM":
            log("Load weight begin. avail mem=20.10 GB", 0)
            await self._take(self._times.load_draft_s)
            log(
                f"Load weight end. elapsed={self._times.load_draft_s:.2f} s, "
                "type=SimulatedEagle3, mem usage=0.88 GB.",
                0,
            )
            if speculation.draft_tp != self._arguments.performance.tp:
                log(f"draft TP = {speculation.draft_tp}", 0)

    async def _allocate(self) -> None:
        if self._faults.has("oom-load"):
            self._die(
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                "Current value: self.server_args.mem_fraction_static=0.85"
            )
        await self._take(self._times.kv_cache_s)
        machine = self._arguments.performance.machine
        half = machine.kv_cache_gb / 2
        log(
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {machine.token_capacity}, "
            f"K size: {half:.2f} GB, V size: {half:.2f} GB",
            0,
        )
        log("Memory pool end. avail mem=11.20 GB", 0)

    async def _capture(self) -> str:
        """Capture every graph; returns the timings as SGLang's summary shows them."""
        speculation = self._arguments.performance.speculation
        further = len(self._arguments.warm_steps[1:])
        phases = {"decode": 0.0, "target_verify": 0.0, "draft_decode": 0.0, "draft_extend": 0.0}
        if not self._arguments.server_args["disable_cuda_graph"]:
            if speculation is None:
                phases["decode"] = self._times.capture_decode_s
            else:
                phases["target_verify"] = self._times.capture_verify_s
                if speculation.algorithm != "NGRAM":
                    phases["draft_decode"] = self._times.capture_draft_s
                    phases["draft_extend"] = self._times.capture_extend_s
        for phase, seconds in phases.items():
            if seconds:
                await self._capture_one(phase, seconds)
        if further:
            seconds = sum(phases.values()) * self._times.capture_more * further
            await self._capture_one(f"{further} further chain lengths'", seconds)
        # Without graphs an illegal tree dies as well, in the first forward of the warm-up.
        self._check_tree()
        return ", ".join(f"{name}={seconds:.2f}" for name, seconds in phases.items())

    async def _capture_one(self, phase: str, seconds: float) -> None:
        name = phase.replace("_", " ")
        log(f"Capture {name} CUDA graph begin. backend=full, avail mem=11.20 GB", 0)
        if self._faults.has("hang-capture"):
            await asyncio.Event().wait()
        await self._take(seconds)
        self._kill("killed-capture")
        if self._faults.has("die-capture"):
            self._die(
                "Exception: Capture cuda graph failed: CUDA error: an illegal memory access was "
                "encountered"
            )
        is_further = "further" in phase
        if self._faults.has("oom-capture") or (is_further and self._faults.has("oom-more-graphs")):
            self._die(
                "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate "
                "1.17 GiB. GPU 0 has a total capacity of 94.97 GiB of which 612.00 MiB is free.\n"
                "Possible solutions:\n1. set --mem-fraction-static to a smaller value\n"
                "2. set --cuda-graph-max-bs-decode to a smaller value"
            )
        if phase == "draft_decode":
            self._check_tree()
        log(f"Capture {name} CUDA graph end. elapsed={seconds:.2f} s, mem usage=0.07 GB.", 0)

    def _check_tree(self) -> None:
        speculation = self._arguments.performance.speculation
        illegal = speculation is not None and (
            speculation.steps < 1
            or not 2 <= speculation.draft_tokens <= speculation.most_draft_tokens
        )
        if illegal or self._faults.has("capture-failed"):
            self._die("RuntimeError: selected index k out of range")

    def _kill(self, fault: str) -> None:
        """End as by the kernel's OOM killer: without a message."""
        if self._faults.has(fault):
            os.kill(os.getpid(), signal.SIGKILL)

    def _die(self, error: str) -> None:
        die_in_scheduler(error, self._arguments.performance.tp)
