"""compare-report, and result files of other benchmarks."""
