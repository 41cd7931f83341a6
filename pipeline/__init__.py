"""The library: plain PyTorch and information retrieval. Imports neither Prefect nor the store."""
