"""Numbers from inside a model."""
