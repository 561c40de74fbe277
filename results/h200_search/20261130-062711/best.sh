#!/usr/bin/env bash
# 2 steps, 3 tokens, draft TP 1, from run h200_search/20261130-062711
# Not for production as it is: --load-format dummy: random weights, SGLANG_SIMULATE_ACC_LEN=3: SGLang pretends the acceptance.
set -eu
unset NCCL_PROTO
export HF_HUB_OFFLINE=1
export PYTHONPATH=/opt/specbench/tuner/plugin:/opt/sglang
export SGLANG_SIMULATE_ACC_LEN=3
export SPECBENCH_DRAFT_TP=1
exec /opt/venv/bin/python3 -m sglang.launch_server \
  --model-path models/llama8b-target \
  --host 127.0.0.1 \
  --port "${PORT:-30000}" \
  --tp-size 2 \
  --speculative-algorithm EAGLE3 \
  --speculative-draft-model-path models/llama8b-eagle3 \
  --speculative-num-steps 2 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 3 \
  --load-format dummy \
  --attention-backend triton \
  --sampling-backend pytorch \
  --grammar-backend none \
  --cuda-graph-backend-prefill disabled \
  --cuda-graph-bs-decode 1 8 \
  --max-running-requests 8 \
  --mem-fraction-static 0.6 \
  --disable-radix-cache
