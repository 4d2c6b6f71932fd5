"""Every error a person can meet, in one tree.

BellwetherError            exit 2, prints what, where and the next step
├── ParamsError            params.yaml or a manifest says something unknown or malformed
├── VersionMismatch        an oracle library runs at another version than params.yaml pins
├── MaterialError          an oracle input cannot be laid out
│   ├── PinMismatch        bytes were found, but not the pinned ones
│   └── InputUnavailable   no route gives the pinned bytes
├── CorpusError            a corpus line or a dataset row breaks a rule of the corpus format
├── OracleError            a checkpoint cannot be used as an oracle at all
│   └── TemplateTimeout    a chat template does not end
├── RegistryError          what an engine registers cannot be read from its package
├── WitnessError           an engine cannot be asked at all
├── EngineError            the scripted engine cannot serve, or has lost what it was asked
├── GatewayError           a gateway cannot be started or reached, or ended while it was observed
├── TableError             a table is missing, torn or of another schema version
└── Finding                exit 1: the command ran and what it checked is wrong
"""

from __future__ import annotations


class BellwetherError(Exception):
    """Raised when a command cannot give a verdict. `next_step` says what the reader can do about it."""

    exit_code = 2

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.next_step = next_step

    def __reduce__(self):  # errors cross process boundaries; the default drops keyword arguments
        return _rebuild, (type(self), str(self), self.next_step)


def _rebuild(kind: type[BellwetherError], message: str, next_step: str) -> BellwetherError:
    error = kind.__new__(kind)
    BellwetherError.__init__(error, message, next_step=next_step)
    return error


class ParamsError(BellwetherError):
    """Raised when params.yaml, a manifest or packages.toml holds an unknown key or a value of the wrong shape."""


class VersionMismatch(BellwetherError):
    """Raised when an installed oracle library is not the version params.yaml pins."""


class MaterialError(BellwetherError):
    """Raised when an oracle input cannot be obtained or laid out."""


class PinMismatch(MaterialError):
    """Raised when bytes differ from their pin. Names file, expected sha256, actual sha256 and route."""


class InputUnavailable(MaterialError):
    """Raised when no route gives an oracle input. The message lists each route and why it failed."""


class CorpusError(BellwetherError):
    """Raised when a corpus line or dataset row breaks the corpus format. Names file and line."""


class OracleError(BellwetherError):
    """Raised when a checkpoint as a whole cannot serve as an oracle (no template, empty stop set, …)."""


class TemplateTimeout(OracleError):
    """Raised when a chat template runs longer than the limit. A time-out is no evidence, so no row is written."""


class RegistryError(BellwetherError):
    """Raised when a registry is not where it was, or written in another way. Half a registry is never returned."""


class WitnessError(BellwetherError):
    """Raised when an engine cannot be started, or ended for good. What goes wrong with one case is a row instead."""


class GatewayError(BellwetherError):
    """Raised when a gateway cannot be started or reached, or ended for good. What goes wrong with one replay is a row
    instead."""


class EngineError(BellwetherError):
    """Raised when the scripted engine cannot serve: a port in use, a malformed script, captures dropped."""


class TableError(BellwetherError):
    """Raised when a table is missing, truncated or of another schema version."""


class Finding(BellwetherError):
    """Raised when a check ran to its end and found a difference."""

    exit_code = 1
