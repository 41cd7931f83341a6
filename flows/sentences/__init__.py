"""The flow of sentence similarity: models measured and compared on tables of sentences."""
