#!/usr/bin/env bash
# 3 steps, 4 tokens, from run h200_draft_tp/20261129-210746
# Not for production as it is: --load-format dummy: random weights, SGLANG_SIMULATE_ACC_LEN=3: SGLang pretends the acceptance.
set -eu
export HF_HUB_OFFLINE=1
export SGLANG_SIMULATE_ACC_LEN=3
exec /opt/torch/.venv/bin/python3 -m sglang.launch_server \
  --model-path models/llama8b-target \
  --host 127.0.0.1 \
  --port "${PORT:-30000}" \
  --tp-size 2 \
  --speculative-algorithm EAGLE3 \
  --speculative-draft-model-path models/llama8b-eagle3 \
  --speculative-num-steps 3 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 \
  --load-format dummy \
  --attention-backend triton \
  --sampling-backend pytorch \
  --grammar-backend none \
  --cuda-graph-backend-prefill disabled \
  --cuda-graph-max-bs-decode 8 \
  --max-running-requests 8 \
  --mem-fraction-static 0.6 \
  --disable-radix-cache
