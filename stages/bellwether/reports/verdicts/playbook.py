"""What a finding means, what usually causes it, and what to try: for people who have not met it before.

`entry` answers for every layer and every difference. A pair queries/verdict.sql gives has words of its own; any other
pair is put together from what is known of the layer and of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from bellwether.reports.verdicts.rules import LAYERS


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the playbook."""

    title: str
    """Half a line, without a full stop."""
    means: str
    cause: str
    try_: str
    """What to do first."""

    @property
    def help(self) -> str:
        """Return the page as plain text."""
        return f"{self.means} Usual cause: {self.cause} Try: {self.try_}"

    @property
    def markdown(self) -> str:
        """Return the page as Markdown."""
        return f"{self.means}\n\n**Usual cause.** {self.cause}\n\n**Try.** {self.try_}\n"


DIFFERENCES = {
    "rejected": "the request is refused",
    "accepted": "a request is answered that has no answer",
    "prompt-ids": "other prompt ids are sent",
    "ids": "a text is encoded to other ids",
    "text": "the ids are decoded to another text",
    "pieces": "the ids are decoded to other pieces",
    "framing": "the event stream breaks its form",
    "message": "another message is read",
    "finish-reason": "another finish reason is given",
    "usage": "other token counts are given",
    "buffered": "the answer is not streamed in pieces",
}
"""What differs, as in column `what` of queries/verdict.sql."""

IN_LAYER = {
    "artifact": "in what is served",
    "template": "in the chat template",
    "special_tokens": "in the special tokens",
    "tokens": "in the tokenizer",
    "logits": "in the probabilities",
    "generation": "in the generated ids",
    "detokenize": "in the detokenizer",
    "parse": "in the output parser",
    "streaming": "only when streamed",
    "api": "at the API",
}

PAGES: dict[tuple[str, str], Entry] = {
    ("template", "prompt-ids"): Entry(
        "The prompt has another text",
        "The request was turned into another prompt than the checkpoint's own template writes; the model sees words "
        "it was not trained on.",
        "Tool schemas written in another key order or spelling, null content, string or object arguments, a role "
        "mapped to another, template variables or the generation prompt not handed on, or a reading of its own of "
        "the template.",
        "Put the two texts beside each other at the place shown. Hand messages, tools and `chat_template_kwargs` to "
        "the template in the order and types the client sent them.",
    ),
    ("template", "rejected"): Entry(
        "The prompt is refused",
        "The checkpoint's template renders this request, the gateway answers it with an error.",
        "The request is normalised or validated before rendering (arguments parsed, content required), so the "
        "template meets types it cannot take; or its syntax is not supported by the gateway's template engine.",
        "Read the code and words of the refusal. Render the request with the gateway's template engine alone, "
        "arguments once as string and once as object.",
    ),
    ("template", "accepted"): Entry(
        "A prompt is made where the template refuses",
        "The checkpoint's template raises on this request, the gateway sends the model a prompt all the same: a "
        "guess that no reference backs.",
        "Roles or histories are repaired before rendering, another template is used, or `raise_exception` does "
        "nothing.",
        "Let errors of the template reach the client as a 400. If the repair is wanted, list it as a known "
        "difference with its issue.",
    ),
    ("special_tokens", "prompt-ids"): Entry(
        "Special tokens of the prompt differ",
        "All other ids are equal: the ids that open or close the prompt or its turns are missing, doubled or others.",
        "The tokenizer adds its BOS to a prompt whose template already wrote one, or a special token in the text is "
        "not encoded as one.",
        "Encode rendered prompts without added special tokens, and with special tokens in the text recognised.",
    ),
    ("tokens", "prompt-ids"): Entry(
        "One prompt text, other ids",
        "The prompt decodes to the right text, yet the model gets other ids: the text is split in another way.",
        "Another tokenizer revision, a normaliser or pre-tokenizer that is not carried out as written, or text "
        "encoded in parts.",
        "Compare the hash of tokenizer.json with the manifest's, then encode the text around the place shown by "
        "itself.",
    ),
    ("tokens", "ids"): Entry(
        "A text is encoded to other ids",
        "The tokenizer route gives other ids for a plain text than the checkpoint's tokenizer.",
        "Special tokens are added, Unicode is normalised, or the pre-tokenizer splits in another way.",
        "Encode the text around the place shown by itself, and check which special tokens the route adds.",
    ),
    ("tokens", "accepted"): Entry(
        "A text is encoded that the tokenizer refuses",
        "The checkpoint's tokenizer has no ids for this text, the gateway gives some.",
        "Characters out of the vocabulary are left out or replaced, or another tokenizer is used.",
        "Compare the hash of tokenizer.json with the manifest's, and refuse what cannot be encoded.",
    ),
    ("tokens", "rejected"): Entry(
        "A text is refused by the tokenizer",
        "The checkpoint's tokenizer encodes the text, the gateway's route answers with an error.",
        "A limit on length, a character filter, or an empty text taken for a missing one.",
        "Read the code and words of the refusal; send the text's halves one by one.",
    ),
    ("detokenize", "text"): Entry(
        "Ids are decoded to another text",
        "The ids are right, the text made of them is not; whatever reads that text reads the wrong thing.",
        "Special tokens skipped that parsers need, spaces cleaned up at token borders, or bytes of a character "
        "decoded before all of them have come (U+FFFD).",
        "Decode with special tokens kept and without clean-up, and hold back incomplete characters.",
    ),
    ("detokenize", "pieces"): Entry(
        "Ids are decoded to other pieces",
        "The text as a whole is right, its cut into pieces by id is not: a stream shows characters too early or too "
        "late.",
        "Bytes of a character given to the id that begins it, or spaces moved over a token's border.",
        "Decode with a state that holds incomplete characters back until the id that completes them.",
    ),
    ("detokenize", "message"): Entry(
        "A message is read from a wrong text",
        "The text the parser was given is not the text of the ids; what the parser makes of it is no evidence of the "
        "parser.",
        "Special tokens skipped before parsing, so markers are missing, or spaces cleaned up at token borders.",
        "Give the parser the text with special tokens kept and without clean-up, then look at the parser again.",
    ),
    ("detokenize", "finish-reason"): Entry(
        "A finish reason is found from a wrong text",
        "The text the parser was given is not the text of the ids, so calls were seen or missed that are not or are "
        "there.",
        "Special tokens skipped before parsing, so markers are missing.",
        "Give the parser the text with special tokens kept and without clean-up, then look at the reason again.",
    ),
    ("detokenize", "accepted"): Entry(
        "Ids are decoded that have no text",
        "The checkpoint's tokenizer refuses these ids, the gateway gives a text.",
        "Ids out of the vocabulary are left out or replaced.",
        "Refuse ids out of the vocabulary with a 400.",
    ),
    ("detokenize", "rejected"): Entry(
        "Ids are refused by the detokenizer",
        "The checkpoint's tokenizer decodes these ids, the gateway's route answers with an error.",
        "An id above the size of the vocabulary the gateway read, or an empty list taken for a missing one.",
        "Read the code and words of the refusal; compare the vocabulary's size, added tokens included.",
    ),
    ("parse", "message"): Entry(
        "The full answer is read wrong",
        "From right ids and right text the parser makes another message than the one the template writes as this "
        "output.",
        "A parser for another format, reasoning that is taken to be open or closed when it is not, arguments parsed "
        "and written anew, or markers matched inside strings.",
        "Check which parser read it against the manifest's, then feed the output's text to that parser alone.",
    ),
    ("parse", "finish-reason"): Entry(
        "The message is right, its finish reason is not",
        "Clients that decide by `finish_reason` stop, or go on, at the wrong time.",
        "The engine's word is handed on although calls were found, or calls are announced although none were.",
        "Set `tool_calls` when and only when the message has calls; otherwise hand on the engine's reason.",
    ),
    ("parse", "rejected"): Entry(
        "A full answer is refused",
        "The output has a right reading, the gateway answers the request with an error instead.",
        "The history or the tools fail a check, or the parser's failure is made the client's.",
        "Read the code and words of the refusal; a parser that cannot read an output gives it as content.",
    ),
    ("parse", "accepted"): Entry(
        "A request is answered that the template refuses",
        "The checkpoint's template has no prompt for this conversation, so there is nothing the answer could answer.",
        "The history is repaired before rendering, or another template is used.",
        "Let errors of the template reach the client as a 400.",
    ),
    ("streaming", "framing"): Entry(
        "The event stream is malformed",
        "The stream breaks a rule every client relies on: JSON in each event, the role first, one finish reason, "
        "`[DONE]` at the end.",
        "Two places that end the stream, a worker's error written as an event, or a flush after the last event.",
        "Look at the raw events of the case shown, last ones first.",
    ),
    ("streaming", "prompt-ids"): Entry(
        "Streamed, the prompt is another",
        "The same request gives the engine other token ids when the client asks for a stream: the model answers "
        "another question than the one that was tested at once.",
        "A path of its own for streams that leaves out tools, template arguments or defaults, or sets other ones.",
        "Send the request with and without `stream`, and put the engine's two prompts beside each other.",
    ),
    ("streaming", "message"): Entry(
        "Streamed, the answer is read otherwise",
        "The same output gives another message when it comes in chunks: what a client gets depends on how the engine "
        "cuts its stream.",
        "A marker split over two chunks, two calls or text and a call in one chunk, or parts not flushed at the end.",
        "Replay the plan shown; then `whole` and `per_token`. Both ends wrong: state between chunks. Only `whole` "
        "wrong: one event is read per chunk.",
    ),
    ("streaming", "finish-reason"): Entry(
        "Streamed, the finish reason differs",
        "The joined message is right, the last event gives another reason than the truth.",
        "The reason is taken from the engine's last chunk, before or without looking at the calls that were streamed.",
        "Keep with the stream whether a call was sent, and decide when it ends.",
    ),
    ("streaming", "usage"): Entry(
        "Streamed, the token counts differ",
        "The usage of the stream is not what the engine counted.",
        "Counts of chunks are added up that are totals already, or the last chunk is not counted.",
        "Take the counts of the engine's last message and nothing else.",
    ),
    ("streaming", "text"): Entry(
        "Streamed, ids are decoded to another text",
        "The text of the pieces joined is not the text of the ids.",
        "Incomplete characters sent early, or a decoder that starts anew with each chunk.",
        "Decode with one state per stream and hold back incomplete characters.",
    ),
    ("streaming", "buffered"): Entry(
        "The answer comes in one piece",
        "The engine sent its output token by token, the client got it as one event: right, and of no use to one who "
        "waits.",
        "The whole output is collected before it is parsed.",
        "Send what no marker can begin any more; keep back only what may still become one.",
    ),
    ("streaming", "rejected"): Entry(
        "A stream is refused",
        "The same request is answered when it is not streamed.",
        "A check or an option that only the streaming path has (`stream_options`, tools).",
        "Read the code and words of the refusal, then send the request with and without `stream`.",
    ),
    ("streaming", "accepted"): Entry(
        "A stream is answered that the template refuses",
        "The full request is refused as it has to be, the streamed one is answered.",
        "The streaming path renders by other rules, or begins to answer before the prompt is made.",
        "Render before the first event is sent.",
    ),
    ("api", "usage"): Entry(
        "Token counts differ",
        "The message is right, `usage` is not what the engine counted: bills and budgets go wrong.",
        "The prompt counted before rendering, special tokens left out, or the answer encoded anew to be counted.",
        "Hand on the engine's own counts.",
    ),
    ("api", "rejected"): Entry(
        "A request is refused at the API",
        "The request is valid and its output has a right reading; the gateway answers with an error.",
        "A field is validated that the API allows, or the history cannot be rendered after it was normalised.",
        "Read the code and words of the refusal, then take fields away until it is accepted.",
    ),
    ("api", "accepted"): Entry(
        "A request is answered that has to be refused",
        "The reference refuses this request, the gateway answers it.",
        "A failed render is replaced by a prompt of the gateway's own.",
        "Let errors of the template reach the client as a 400.",
    ),
}
"""(layer, difference) → its page."""

FIELDS = {
    ("message", "content"): "The text for the user differs.",
    ("message", "reasoning_content"): "The reasoning differs: look at where its markers begin and end.",
    ("message", "tool_calls"): "The calls differ: their number, a name, or the value of an argument.",
    ("message", "whitespace"): "Only white space differs: something is trimmed, or is not.",
    ("framing", "no-terminal"): "No event gives a finish reason.",
    ("framing", "two-terminals"): "More than one event gives a finish reason.",
    ("framing", "after-terminal"): "Text or calls follow the event with the finish reason.",
    ("framing", "not-json"): "An event holds something else than a JSON object.",
    ("framing", "no-done"): "The stream ends without `[DONE]`.",
    ("framing", "late-role"): "The role comes after text or calls.",
    ("usage", "prompt"): "The prompt's count differs.",
    ("usage", "completion"): "The answer's count differs.",
}
"""(difference, field) → what the field adds to the page."""

DIFFERS = Entry(
    "The answer differs, and it is not known where",
    "The gateway does not give the truth on this case; what was seen of it does not tell a layer.",
    "Not known.",
    "Run the case shown by itself and put both sides beside each other.",
)

VERDICTS = {
    "regression": DIFFERS,
    "rejected": DIFFERS,
    "known_difference": DIFFERS,
    "engine_defect": Entry(
        "The gateway is right, an engine is not",
        "The gateway gives the truth; the named engine at its pinned release differs from it, so the two do not "
        "interoperate on this case.",
        "A defect of the engine's own renderer or parser.",
        "Report it upstream, then add a waiver with the issue and the range of versions to queries/waivers.toml.",
    ),
    "known_but_matches": Entry(
        "A known difference is gone",
        "The case is listed as a known difference and matches now; the entry would hide the next one.",
        "The gateway was mended, or the reference moved.",
        "Remove the entry from the target's file in queries/known/.",
    ),
    "missing": Entry(
        "No request arrived at the engine",
        "The gateway answered, yet the scripted engine saw no request of that id: what was answered is not known to "
        "come from the output that was to be read. Never evidence, and never a pass.",
        "A cache or another worker answered, or the request id is not handed on.",
        "Serve the checkpoint by the scripted engine alone and let the request id through.",
    ),
    "measurement_failed": Entry(
        "The measurement failed",
        "The gateway gave neither an answer nor a refusal of its own: a time-out, a lost connection, a 5xx, a "
        "redirect or a malformed body. Never evidence, and never a pass.",
        "A crash or overload of the gateway, or it was stopped during the run.",
        "Read the gateway's log around the case shown, and run that case alone.",
    ),
}
"""Verdict without a layer → its page."""

LISTS = {
    "stale-waiver": Entry(
        "A waiver has nothing left to waive",
        "The engine agrees on the case, or the case is no longer one it could differ on; the waiver would hide a new "
        "defect.",
        "The engine was mended, or the case moved.",
        "Remove it from queries/waivers.toml.",
    ),
    "stale-known-difference": Entry(
        "A known difference names no case",
        "No loaded case has the entry's id, or an id that begins like it.",
        "A case was renamed, or its checkpoint left the scope.",
        "Remove or correct the entry in the target's file in queries/known/.",
    ),
    "matching-known-difference": Entry(
        "Nothing differs under a known difference",
        "All cases whose ids begin like the entry match now; the entry would hide the next difference.",
        "The gateway was mended, or the references moved.",
        "Remove the entry from the target's file in queries/known/.",
    ),
}
"""Finding about a list of this checkout → its page."""


def entry(layer: str, what: str, field: str | None = None) -> Entry:
    """Return the page of a difference in a layer.

    Raises:
        KeyError: no layer or no difference has this name.
    """
    page = PAGES.get((layer, what)) or _put_together(layer, what)
    added = FIELDS.get((what, field or ""))
    return page if added is None else Entry(page.title, f"{page.means} {added}", page.cause, page.try_)


def page(verdict: str, layer: str | None, what: str | None, field: str | None = None) -> Entry:
    """Return the page of a finding: of its difference where it has one, else of its verdict.

    Raises:
        KeyError: neither has a page.
    """
    return entry(layer, what, field) if layer and what else VERDICTS[verdict]


def _put_together(layer: str, what: str) -> Entry:
    difference, place = DIFFERENCES[what], IN_LAYER[layer]
    after = LAYERS[LAYERS.index(layer) + 1 :]
    follows = f" What follows it ({', '.join(after)}) may differ because of it." if after else ""
    return Entry(
        f"{difference[0].upper()}{difference[1:]}, first seen {place}",
        f"Compared with the truth, {difference}; nothing earlier was seen to differ.{follows}",
        "Not known of this pair.",
        "Run the case shown by itself and put both sides beside each other.",
    )
