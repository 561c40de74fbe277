"""What a load client costs: specbench's own against those of other benchmarks."""
