"""How an environment is put together: pip, the wheels it fetches, and what is left out and shared afterwards."""
