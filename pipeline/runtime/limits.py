"""What an error tells to do, where more than one module raises it."""

LESS_MEMORY = "lower machine.token_budget, set machine.chunk_spans, or for coCondenser machine.cache=always"
"""What helps where a training does not fit."""
