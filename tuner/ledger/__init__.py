"""The run folder: what was asked and measured, on which machine; enough to go on after a crash."""
