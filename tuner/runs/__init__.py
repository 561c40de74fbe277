"""The run folder: ledger, machine facts, locks, crash recovery, status."""
