"""The answer of a run: baselines, winner, ties, cycle breakdown, the answer per load."""
