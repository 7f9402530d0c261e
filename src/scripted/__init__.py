"""A scripted model provider over real HTTP, for the demo, the tests and the benchmarks."""
