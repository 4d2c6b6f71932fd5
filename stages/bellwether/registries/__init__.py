"""What engines register, read from their packages as text: nothing of an engine is imported or run."""
