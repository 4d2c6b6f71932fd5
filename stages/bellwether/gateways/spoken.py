"""What an engine says of an output: its pieces, with the id that ends the turn."""

from __future__ import annotations

from bellwether.gateways.answer import Output


def spoken(output: Output) -> list[list[int]]:
    """Return the chunks an engine sends, whole when none are asked for.

    As in engines, the id that ends the turn comes with the last chunk; where every id comes alone, it does too.
    """
    chunks = [list(chunk) for chunk in (output.chunks if output.chunks is not None else [output.ids])]
    if output.stop_id is None:
        return chunks
    if chunks and not (output.chunks is not None and all(len(chunk) == 1 for chunk in chunks)):
        chunks[-1].append(output.stop_id)
        return chunks
    return [*chunks, [output.stop_id]]
