"""Where what was downloaded or built stays on this machine, for all checkouts of this user."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return where downloads are kept: `BELLWETHER_CACHE`, else the user's cache folder."""
    return Path(os.environ.get("BELLWETHER_CACHE") or platformdirs.user_cache_dir("bellwether"))
