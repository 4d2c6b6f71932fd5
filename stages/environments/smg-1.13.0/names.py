"""Prints the gateway's version and the parsers it lists as choices of its command line, as JSON."""

import json
from importlib.metadata import version

from smg.smg_rs import get_available_reasoning_parsers, get_available_tool_call_parsers

listed = {"tool": get_available_tool_call_parsers(), "reasoning": get_available_reasoning_parsers()}
print(json.dumps({"version": version("smg"), "listed": listed}))
