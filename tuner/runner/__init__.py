"""The order of a run: baseline, NCCL screening, candidates, closing launches, budget."""
