"""One adapter per system under test: how it is started or reached, and which of its routes shows which layer."""
