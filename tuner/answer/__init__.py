"""What a run has found: the candidate to run, what is as good, and where speculation pays."""
