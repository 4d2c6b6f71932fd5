"""Bellwether: versioned references for chat rendering and output parsing, and the measurements made against them."""
