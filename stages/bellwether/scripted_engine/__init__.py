"""An engine without a model that gateways are pointed at: it streams recorded ids and captures prompts."""

from bellwether.scripted_engine.capture import Capture
from bellwether.scripted_engine.engine import ScriptedEngine

__all__ = ["Capture", "ScriptedEngine"]
