"""What optuna-dashboard shows of a run."""
