#!/usr/bin/env bash
# no speculation, from run smollm2_ngram/20261129-232742
set -eu
export HF_HUB_OFFLINE=1
exec /opt/venv/bin/python3 -m sglang.launch_server \
  --model-path models/smollm2/target \
  --host 127.0.0.1 \
  --port "${PORT:-30000}" \
  --tp-size 1 \
  --attention-backend triton \
  --sampling-backend pytorch \
  --grammar-backend none \
  --cuda-graph-backend-prefill disabled \
  --cuda-graph-max-bs-decode 16 \
  --max-running-requests 16 \
  --mem-fraction-static 0.3 \
  --disable-radix-cache
