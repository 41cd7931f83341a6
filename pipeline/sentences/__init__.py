"""Sentence similarity: what a model's vectors are worth without a collection (Condenser, its sentence tasks)."""
