"""The Optuna study, samplers, the staged search and its models."""
