"""Agent traces: long made-up conversations between a user, an assistant and its tools, one render case per turn.

Public datasets of single turns never show what agents send: the same tools and the same growing history, turn after
turn, full of code, logs and JSON. These conversations have that shape and nothing else to say. They are drawn from
word lists by a seed, so the same seed gives the same bytes everywhere; only methods of `random.Random` are used whose
sequence Python keeps.

Every checkpoint's template accepts them: one call per assistant message, call ids of nine letters and digits, content
always a string, user and assistant taking turns, with a tool's result after each call.
"""

from __future__ import annotations

import random
import string
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bellwether.case import Case, Origin, json_text
from bellwether.corpora.sources import Fetch, Items
from bellwether.errors import CorpusError

T = TypeVar("T")
DATASET = "traces"
SET = "traces-agent"
LICENSE = "Apache-2.0"
TURNS = (25, 50)
"""Fewest and most turns of a conversation; each turn is one assistant message, and one case asks for it."""
TOOLS = (5, 20)
RESULT_CHARACTERS = (200, 2000)
"""Fewest and most characters of a tool's result."""
RULES = (20, 70)
"""Fewest and most rules of a system prompt; those of agents are long."""
MIXED = 0.1
"""How often a tool's result goes on with something else."""
ANSWERS = 0.2
"""Share of turns in which the assistant answers the user and calls nothing."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: the conversations `folder/traces.toml` asks for. Nothing is fetched.

    Raises:
        CorpusError: the file is missing, or does not hold a seed and a number of conversations and nothing else.
    """
    path = folder / "traces.toml"
    try:
        asked = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: {error}", next_step="Restore it from Git.") from None
    if set(asked) != {"seed", "conversations"} or any(type(value) is not int for value in asked.values()):
        raise CorpusError(f"{path}: expected whole numbers `seed` and `conversations`", next_step="Mend the file.")
    return cases(asked["seed"], asked["conversations"])


def cases(seed: int, conversations: int) -> Iterator[Case]:
    """Yield the render cases of `conversations` conversations, turn by turn; one conversation is held in memory.

    Conversation `n` of a seed is the same whatever the number of conversations.
    """
    origin = Origin(DATASET, "generated", f"corpus/traces/traces.toml, seed {seed}", "", LICENSE)
    for number in range(conversations):
        yield from _conversation(random.Random(f"{seed}/{number}"), f"{seed}-{number}", origin)


def _conversation(draw: random.Random, name: str, origin: Origin) -> Iterator[Case]:
    """The text of each message is written once and joined anew for every turn."""
    tools = _some(draw, _TOOLS, _between(draw, TOOLS))
    topic = _pick(draw, _TOPICS)
    listed = json_text([_schema(draw, tool) for tool in tools])
    said = [json_text({"role": "system", "content": _system(draw, topic)}), json_text(_user(draw, topic))]
    turns = _between(draw, TURNS)
    for turn in range(1, turns + 1):
        yield Case(
            kind="render",
            set=SET,
            name=f"traces-{name}-{turn}",
            origin=origin,
            row=f"{name}/{turn}",
            written=("messages", "tools"),
            notes=f"turn {turn} of {turns} of a made-up agent conversation about {topic}",
            request=f'{{"messages":[{",".join(said)}],"tools":{listed}}}',
        )
        if draw.random() < ANSWERS:
            answer = {"role": "assistant", "content": _answer(draw, topic)}
            said += [json_text(answer), json_text(_user(draw, topic))]
        else:
            said += [json_text(message) for message in _call(draw, _pick(draw, tools))]


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _system(draw: random.Random, topic: str) -> str:
    rules = "\n".join(f"{place}. {_sentence(draw)}" for place in range(1, _between(draw, RULES)))
    return f"You work on {topic}. Use the tools, one call at a time, and answer when you know enough.\n\n{rules}"


def _user(draw: random.Random, topic: str) -> dict[str, Any]:
    parts = [f"About {topic}: {_prose(draw, _between(draw, (1, 6)))}"]
    if draw.random() < 0.4:
        parts.append(_fenced(draw))
    if draw.random() < 0.3:
        parts.append(_pick(draw, _FOREIGN))
    return {"role": "user", "content": "\n\n".join(parts)}


def _answer(draw: random.Random, topic: str) -> str:
    parts = [f"**{topic.capitalize()}**: {_prose(draw, _between(draw, (2, 5)))}"]
    parts += [_fenced(draw) if draw.random() < 0.5 else _table(draw) for _ in range(_between(draw, (0, 2)))]
    return "\n\n".join([*parts, _prose(draw, 1)])


def _call(draw: random.Random, tool: Tool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an assistant message that calls `tool`, and the tool's result."""
    name, _, parameters = tool
    call_id = "".join(_pick(draw, string.ascii_letters + string.digits) for _ in range(9))
    given = {
        key: _VALUES[kind](draw) for place, (key, kind, _) in enumerate(parameters) if not place or draw.random() < 0.7
    }
    function = {"name": name, "arguments": json_text(given)}
    call = {"id": call_id, "type": "function", "function": function}
    said = _prose(draw, 1) if draw.random() < 0.5 else ""
    return (
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": _result(draw)},
    )


def _result(draw: random.Random) -> str:
    """Return between RESULT_CHARACTERS characters of what a tool prints."""
    length = _between(draw, RESULT_CHARACTERS)
    write = _pick(draw, _RESULTS)
    text = write(draw)
    while len(text) < length:
        if draw.random() < MIXED:
            write = _pick(draw, _RESULTS)
        text += "\n" + write(draw)
    return text[:length]


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────

Parameter = tuple[str, str, str]
"""Name, kind of value (a key of `_VALUES`), description."""
Tool = tuple[str, str, list[Parameter]]
"""Name, description, parameters; the first one is required."""

_TOOLS_TEXT = """
read_file: Return the lines of a file.
    path path: File below the project's root.
    first_line integer: 1-based.
    last_line integer: Inclusive.
write_file: Replace a file's content.
    path path: File to write.
    content code: Its whole new text.
    create boolean: Whether the file may be new.
search_code: Find a pattern in all files.
    pattern word: Regular expression.
    folder path: Where to look.
    case_sensitive boolean: Off unless told.
run_command: Run one shell command and return what it prints.
    command command: Passed to the shell as it is.
    timeout_seconds number: Longest time it may take.
    environment object: Variables to set.
apply_patch: Apply a unified diff.
    patch diff: The diff, with context lines.
    dry_run boolean: Only say whether it would apply.
run_tests: Run the tests that match.
    selection words: Names of tests.
    verbose boolean: Print each test.
    workers integer: Processes to use.
query_database: Run a read-only SQL query.
    query sql: One statement.
    limit integer: Most rows to return.
tail_log: Return the newest lines of a service's log.
    service word: Name of the service.
    lines integer: How many.
    level level: Lowest level shown.
get_metrics: Return a time series.
    name word: Metric.
    labels object: Label values that must match.
    step_seconds number: Distance of two points.
create_ticket: Open a ticket.
    title sentence: One line.
    body prose: What happened, and where.
    labels words: Labels to set.
    priority level: How soon.
send_message: Write to a person or a channel.
    to word: Name of the receiver.
    text foreign: What to say, in their language.
lookup_customer: Find a customer by any field.
    text name: Name, city or number.
    fields words: Fields to return.
translate_text: Translate a text.
    text foreign: In any language.
    target language: Language code.
schedule_meeting: Find a time and invite people.
    people names: Who must come.
    minutes integer: How long.
    not_before date: Earliest day.
convert_currency: Convert an amount at a day's rate.
    amount number: In the first currency.
    from currency: Three letters.
    to currency: Three letters.
    day date: Day of the rate.
find_place: Return coordinates of a place.
    query name: Free text.
    near object: Latitude and longitude.
    language language: Language of the names.
fetch_page: Fetch a web page as text.
    url url: Full address.
    selector word: Only this part.
    headers object: Headers to send.
resize_image: Scale a stored image.
    path path: The image.
    width integer: Pixels.
    keep_ratio boolean: Whether the height follows.
deploy_service: Roll out a version.
    service word: What to deploy.
    version version: Tag of the image.
    regions words: Where.
    settings object: Overrides.
list_folder: List a folder.
    path path: The folder.
    depth integer: Levels below it.
plot: Draw a chart of numbers.
    series numbers: Values in order.
    title sentence: Written above.
    kind word: Line, bar or points.
remember: Store a note for later turns.
    key word: Name of the note.
    note prose: What to keep.
review_change: Return the remarks on a change.
    change integer: Its number.
    files paths: Only these files.
calculate: Evaluate an expression.
    expression expression: Usual precedence.
    digits integer: Digits after the point.
"""
"""Name and description of each tool; below, name, kind of value and description of each parameter."""


def _read(text: str) -> list[Tool]:
    tools: list[Tool] = []
    for line in text.strip().split("\n"):
        head, _, description = line.partition(": ")
        if line.startswith(" "):
            key, kind = head.split()
            tools[-1][2].append((key, kind, description))
        else:
            tools.append((head, description, []))
    return tools


_TOOLS = _read(_TOOLS_TEXT)

_JSON_TYPES = {
    **{kind: {"type": "array", "items": {"type": "string"}} for kind in ("words", "names", "paths")},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "object": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
    "level": {"type": "string", "enum": ["low", "medium", "high", "urgent"]},
    "date": {"type": "string", "format": "date"},
    "integer": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "boolean": {"type": "boolean", "default": False},
}
"""JSON Schema of each kind of value; the others are strings."""


def _schema(draw: random.Random, tool: Tool) -> dict[str, Any]:
    name, description, parameters = tool
    properties = {
        key: {**_JSON_TYPES.get(kind, {"type": "string"}), "description": text} for key, kind, text in parameters
    }
    schema = {"type": "object", "properties": properties, "required": [parameters[0][0]]}
    text = f"{description} {_prose(draw, _between(draw, (1, 5)))}"
    return {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}


# ── what values and results look like ────────────────────────────────────────────────────────────────────────────────

_TOPICS = (
    *("a slow query", "the billing export", "a flaky test", "the spring release", "a migration to Postgres"),
    *("the weather station", "a trip to Lisbon", "the mail queue", "a memory leak", "the search index", "an audit"),
    *("the photo archive", "a broken build", "the loyalty programme", "customer complaints", "the parser"),
)
_SUBJECTS = "the worker, this function, a second request, the cache, our pipeline, every row, the old index".split(", ")
_VERBS = "returns, drops, repeats, shadows, waits for, overwrites, outlives, misreads, rejects, batches".split(", ")
_OBJECTS = (
    *("the lock", "its own header", "two identical keys", "an empty page", "the first byte", "a stale handle"),
    *("all pending writes", "a 404", "the time zone", "ten thousand rows", "the naïve estimate", "half of the budget"),
)
_ENDINGS = (
    *(" when the disk is full", " after a restart", ", which nobody expected", " – but only on Tuesdays", ""),
    *(" unless `retry=False`", " (see §4.2)", " in about 3.7 % of all runs", " since v2.11.0-rc.3", " and then stops"),
)
_WORDS = (
    *"queue shard token ledger beacon socket widget cursor kernel bucket invoice tenant replica schema digest".split(),
    *"payload gateway harvest latency snapshot vertex orphan lattice mirror anchor quorum fixture relay".split(),
)
_NAMES = (
    *("Zoë Brandt", "Łukasz Nowak", "Aïcha Diallo", "Søren Kjær", "María Peña", "Đặng Thu Hà", "王芳", "佐藤健"),
    *("김민수", "Иван Орлов", "Ελένη Παππά", "नेहा शर्मा", "ليلى حداد", "דוד לוי", "สมชาย ใจดี", "O'Connor & Sons"),
)
_FOREIGN = (
    "Bitte prüfe die Größe der Straßenkarte, bevor du sie überschreibst.",
    "L'œuvre n'a pas été livrée ; où faut-il réclamer ?",
    "Проверь, пожалуйста, почему сервер отвечает так медленно.",
    "请先检查日志,再告诉我为什么第三个任务失败了。",
    "昨日の変更を元に戻して、テストをもう一度実行してください。",
    "서버가 왜 두 번 다시 시작되었는지 알려 주세요.",
    "الرجاء إرسال التقرير قبل نهاية الأسبوع، مع الأرقام المحدّثة.",
    "कृपया बताइए कि पिछली रिपोर्ट में कौन-सी पंक्तियाँ छूट गई थीं।",
    "শেষ পরীক্ষাটি কেন ব্যর্থ হলো, একটু দেখে জানাবেন।",
    "Έλεγξε ξανά τα αρχεία· κάτι λείπει από τον φάκελο.",
    "בדוק בבקשה אם ההודעה נשלחה פעמיים.",
    "ช่วยสรุปผลการทดสอบเมื่อวานให้หน่อย",
    "Großartig 🎉 – läuft wieder! 👩‍💻🚀 Nur ⚠️ Zeile 7 bleibt rot. 👍🏽",
    "Cafe\u0301 und Café sehen gleich aus, sind aber nicht dieselben Zeichen.",
)


def _pick(draw: random.Random, items: Sequence[T]) -> T:
    return items[draw.randrange(len(items))]


def _some(draw: random.Random, items: Sequence[T], count: int) -> list[T]:
    """Return `count` different items in a drawn order."""
    left = list(items)
    return [left.pop(draw.randrange(len(left))) for _ in range(count)]


def _between(draw: random.Random, limits: tuple[int, int]) -> int:
    return limits[0] + draw.randrange(limits[1] - limits[0] + 1)


def _sentence(draw: random.Random) -> str:
    text = " ".join(_pick(draw, words) for words in (_SUBJECTS, _VERBS, _OBJECTS)) + _pick(draw, _ENDINGS) + "."
    return text[0].upper() + text[1:]


def _prose(draw: random.Random, sentences: int) -> str:
    return " ".join(_sentence(draw) for _ in range(sentences))


def _word(draw: random.Random) -> str:
    return _pick(draw, ("{}_{}", "{}-{}", "{}{}", "{}.{}")).format(_pick(draw, _WORDS), _pick(draw, _WORDS))


def _path(draw: random.Random) -> str:
    folders = "/".join(_pick(draw, _WORDS) for _ in range(_between(draw, (1, 4))))
    return f"src/{folders}/{_word(draw)}.{_pick(draw, ('py', 'rs', 'ts', 'sql', 'toml', 'md'))}"


def _number(draw: random.Random) -> float:
    return draw.randrange(10**6) / 10 ** draw.randrange(5)


def _date(draw: random.Random) -> str:
    return f"2025-{_between(draw, (1, 12)):02}-{_between(draw, (1, 28)):02}"


def _hex(draw: random.Random, digits: int) -> str:
    return "".join(_pick(draw, "0123456789abcdef") for _ in range(digits))


def _value(draw: random.Random) -> object:
    return _pick(draw, (_number, _word, _date, lambda _: None, lambda _: True, lambda one: _pick(one, _NAMES)))(draw)


def _record(draw: random.Random, depth: int = 1) -> dict[str, object]:
    record: dict[str, object] = {_word(draw): _value(draw) for _ in range(_between(draw, (2, 6)))}
    if depth:
        record["items"] = [_record(draw, depth - 1) for _ in range(_between(draw, (1, 4)))]
    return record


def _command(draw: random.Random) -> str:
    return _pick(
        draw,
        (
            f"grep -rn '{_word(draw)}' src | sort | uniq -c | head -{draw.randrange(50)}",
            f'git log --since={_date(draw)} --format="%h %s" -- {_path(draw)}',
            f"curl -sS -X POST localhost:{draw.randrange(65536)}/{_word(draw)} -d '{json_text(_record(draw, 0))}'",
            f"find . -name '*.{_pick(draw, _WORDS)}' -size +{draw.randrange(100)}k -exec wc -l {{}} +",
        ),
    )


def _sql(draw: random.Random) -> str:
    table, column = _pick(draw, _WORDS), _pick(draw, _WORDS)
    return (
        f"SELECT {column}, count(*) AS n\nFROM {table}s AS t\n  LEFT JOIN {_pick(draw, _WORDS)} USING (id)\n"
        f"WHERE t.created >= '{_date(draw)}' AND {column} <> {draw.randrange(1000)}\nGROUP BY 1\nORDER BY n DESC;"
    )


def _python(draw: random.Random) -> str:
    name, field = _pick(draw, _WORDS), _pick(draw, _WORDS)
    return (
        f"def {name}_of({field}: dict[str, int], *, limit: int = {draw.randrange(500)}) -> list[str]:\n"
        f'    """{_sentence(draw)}"""\n    seen = set()\n    for key, value in {field}.items():\n'
        f"        if value % {draw.randrange(2, 99)} == 0 and key not in seen:\n            seen.add(key)\n"
        f'    return sorted(f"{{key!r}}:{_hex(draw, 6)}" for key in seen)[:limit]\n'
    )


def _rust(draw: random.Random) -> str:
    name = _pick(draw, _WORDS)
    return (
        f"pub fn {name}<'a>(rows: &'a [u8]) -> Result<&'a str, Error> {{\n"
        f"\t// {_sentence(draw)}\n\tlet end = rows.iter().position(|&b| b == 0x{_hex(draw, 2)}).ok_or(Error::Short)?;\n"
        f"\tmatch std::str::from_utf8(&rows[..end]) {{\n\t\tOk(text) => Ok(text.trim_end()),\n"
        f'\t\tErr(cause) => Err(Error::Bad {{ at: {draw.randrange(4096)}, what: format!("{{cause:?}}") }}),\n\t}}\n}}\n'
    )


def _typescript(draw: random.Random) -> str:
    name = _pick(draw, _WORDS)
    return (
        f"export const {name} = async ({{ id, ...rest }}: Props): Promise<void> => {{\n"
        f"  const url = `/api/{_word(draw)}/${{id}}?after={_date(draw)}`;\n"
        f"  if (!rest.{_pick(draw, _WORDS)}?.length) {{ throw new Error('{_word(draw)} && <none>'); }}\n"
        f"  await fetch(url, {{ method: 'PUT', body: JSON.stringify(rest, null, {draw.randrange(5)}) }});\n}};\n"
    )


_CODE: dict[str, Callable[[random.Random], str]] = {
    "python": _python,
    "rust": _rust,
    "ts": _typescript,
    "sql": _sql,
    "sh": _command,
}


def _code(draw: random.Random) -> str:
    return _CODE[_pick(draw, tuple(_CODE))](draw)


def _fenced(draw: random.Random) -> str:
    language = _pick(draw, tuple(_CODE))
    return f"```{language}\n{_CODE[language](draw)}\n```"


def _diff(draw: random.Random) -> str:
    path, line = _path(draw), draw.randrange(1, 900)
    old, new = _python(draw).split("\n"), _python(draw).split("\n")
    changed = "\n".join([f"-{old[0]}", f"+{new[0]}", *(f" {text}" for text in old[1:4]), f"-{old[4]}", f"+{new[4]}"])
    return f"--- a/{path}\n+++ b/{path}\n@@ -{line},6 +{line},6 @@\n{changed}\n"


def _table(draw: random.Random) -> str:
    names = _some(draw, _WORDS, _between(draw, (2, 5)))
    rows = [[str(_value(draw)) for _ in names] for _ in range(_between(draw, (2, 6)))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ["---"] * len(names), *rows])


def _log(draw: random.Random) -> str:
    time = f"{_date(draw)}T{draw.randrange(24):02}:{draw.randrange(60):02}:{draw.randrange(60):02}.{_hex(draw, 3)}Z"
    level = _pick(draw, ("INFO ", "DEBUG", "WARN ", "ERROR"))
    return f"{time} {level} [{_word(draw)}#{draw.randrange(64)}] {_sentence(draw)} trace={_hex(draw, 16)}"


def _listing(draw: random.Random) -> str:
    return f"{_path(draw)}:{draw.randrange(1, 2000)}:\t{_python(draw).split(chr(10))[_between(draw, (0, 4))]}"


def _page(draw: random.Random) -> str:
    return f'<li class="{_word(draw)}"><a href="/{_hex(draw, 8)}?q={_word(draw)}&amp;n=1">{_sentence(draw)}</a></li>'


_RESULTS: tuple[Callable[[random.Random], str], ...] = (
    lambda draw: json_text(_record(draw)),
    lambda draw: _pick(draw, _FOREIGN),
    *(_log, _log, _listing, _listing, _code, _diff, _table, _page),
)
_VALUES: dict[str, Callable[[random.Random], object]] = {
    "path": _path,
    "paths": lambda draw: [_path(draw) for _ in range(_between(draw, (1, 4)))],
    "integer": lambda draw: draw.randrange(5000),
    "number": _number,
    "numbers": lambda draw: [_number(draw) for _ in range(_between(draw, (3, 30)))],
    "boolean": lambda draw: draw.random() < 0.5,
    "object": lambda draw: _record(draw, 0),
    "word": _word,
    "words": lambda draw: [_word(draw) for _ in range(_between(draw, (1, 5)))],
    "name": lambda draw: _pick(draw, _NAMES),
    "names": lambda draw: _some(draw, _NAMES, _between(draw, (1, 4))),
    "sentence": _sentence,
    "prose": lambda draw: _prose(draw, _between(draw, (1, 5))),
    "foreign": lambda draw: _pick(draw, _FOREIGN),
    "code": _code,
    "diff": _diff,
    "sql": _sql,
    "command": _command,
    "level": lambda draw: _pick(draw, ("low", "medium", "high", "urgent")),
    "date": _date,
    "language": lambda draw: _pick(draw, ("de", "fr", "ja", "ar", "pt-BR", "zh-Hant")),
    "currency": lambda draw: _pick(draw, ("EUR", "USD", "JPY", "INR", "CHF")),
    "url": lambda draw: f"https://{_word(draw).replace('_', '-')}.example/{_word(draw)}?page={draw.randrange(99)}#top",
    "version": lambda draw: f"v{draw.randrange(9)}.{draw.randrange(30)}.{draw.randrange(100)}-{_hex(draw, 7)}",
    "expression": lambda draw: (
        f"({_number(draw)} + {draw.randrange(99)}) * {_number(draw)} ** 2 / sqrt({_number(draw)})"
    ),
}
"""Kind of value → how one is drawn."""
