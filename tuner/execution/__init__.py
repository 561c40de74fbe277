"""One trial, one launch, and the executors that run launches."""
