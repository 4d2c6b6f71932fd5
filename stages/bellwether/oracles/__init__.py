"""Reference oracles: chat template, round trip, encoders, incremental decoding. Only worker processes import them."""

import os

# Set before transformers is imported: no model is loaded here, so its advice about a missing torch is noise.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # an oracle reads a verified folder and nothing else
