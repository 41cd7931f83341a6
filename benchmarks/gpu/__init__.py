"""Speeds on one GPU, against the published way and sentence-transformers: `python -m benchmarks.gpu`."""
