"""Cases replayed through a gateway in front of a scripted engine, and what came of each."""
