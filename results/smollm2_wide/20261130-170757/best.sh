#!/usr/bin/env bash
# no speculation, from run smollm2_wide/20261130-170757
set -eu
export HF_HUB_OFFLINE=1
exec /opt/venv/bin/python3 -m sglang.launch_server \
  --model-path models/smollm2/wide \
  --host 127.0.0.1 \
  --port "${PORT:-30000}" \
  --tp-size 1 \
  --attention-backend triton \
  --sampling-backend pytorch \
  --grammar-backend none \
  --cuda-graph-backend-prefill disabled \
  --cuda-graph-bs-decode 1 8 64 \
  --max-running-requests 64 \
  --mem-fraction-static 0.3 \
  --disable-radix-cache
