"""Sentence similarity: quality of a model's vectors without a collection (Condenser, sentence tasks)."""
