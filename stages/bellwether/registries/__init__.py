"""What engines and gateways register, read from their packages as text: nothing of them is imported or run."""
