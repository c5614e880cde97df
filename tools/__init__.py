"""tools: command line, benchmarks and scripts for operators and developers."""
