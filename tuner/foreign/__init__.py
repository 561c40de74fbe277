"""Results of other benchmarks: each file's figures, as far as they mean what specbench's mean."""
