"""The MGSM importer: the same school problems in eleven languages, with answers, and worked exemplars.

MGSM is the free source of natural text in many scripts, among them Bengali, Telugu and Thai, where tokenizers that
normalise disagree with those that do not: most Bengali questions are not in Unicode's NFC form. Texts are therefore
taken over as they stand. The exemplars are Python source, which is read as a syntax tree and never run.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bellwether.case import Case, Origin, json_text
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.sources import Fetch, Items, Source, read_source
from bellwether.errors import CorpusError

DATASET = "mgsm"
EXEMPLARS = "mgsm/exemplars.py"
ENGLISH = "en"
"""Its questions are the first 250 of GSM8K's test split, word for word, so it has no requests of its own here."""
ANSWER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)", re.ASCII)
NUMBER = re.compile(r"-?\d[\d,]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wording:
    """How the exemplars of one language are written."""

    question: str
    """Label before a question."""
    answer: str
    """Label before a worked answer."""
    final: str
    """Words that begin the sentence with the final answer."""


LANGUAGES = {
    "bn": Wording("প্রশ্ন: ", "ধাপে ধাপে উত্তর: ", "উত্তর হল "),
    "de": Wording("Frage: ", "Schritt-für-Schritt-Antwort: ", "Die Antwort "),
    "en": Wording("Question: ", "Step-by-Step Answer: ", "The answer is "),
    "es": Wording("Pregunta: ", "Respuesta paso a paso: ", "La respuesta es "),
    "fr": Wording("Question : ", "Réponse étape par étape : ", "La réponse est "),
    "ja": Wording("問題：", "ステップごとの答え：", "答えは"),
    "ru": Wording("Задача: ", "Пошаговое решение: ", "Ответ — "),
    "sw": Wording("Swali: ", "Jibu la Hatua kwa Hatua: ", "Jibu ni "),
    "te": Wording("ప్రశ్న: ", "దశలవారీగా సమాధానం: ", "సమాధానం "),
    "th": Wording("โจทย์: ", "คำตอบทีละขั้นตอน: ", "คำตอบคือ "),
    "zh": Wording("问题：", "逐步解答：", "答案是"),
}
"""Language → wording, in build order."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: language by language, then the exemplars; repeats dropped. Raises as the functions below."""
    source = read_source(folder)

    def all_cases() -> Iterator[Case]:
        for language in LANGUAGES:
            yield from cases(source, fetch, language)
        yield from exemplars(source, fetch)

    return drop_repeats(all_cases())


def cases(source: Source, fetch: Fetch, language: str) -> Iterator[Case]:
    """Yield the cases of one language: all requests (none for English), then all final answers.

    Sets are `mgsm-<language>` and `mgsm-<language>-content`; a case is named after its set and its 0-based line.

    Raises:
        CorpusError: a line is not a question, one tab and a whole number in ASCII digits. Names file and 1-based line.
    """
    path = f"mgsm/mgsm_{language}.tsv"
    origin, data = _origin(source, fetch, path)
    rows = list(_rows(data, path))
    if language != ENGLISH:
        for index, question, _ in rows:
            yield _case("render", f"mgsm-{language}", index, origin, str(index), question)
    for index, question, answer in rows:
        yield _case("parse", f"mgsm-{language}-content", index, origin, str(index), question, {"content": answer})


def exemplars(source: Source, fetch: Fetch) -> Iterator[Case]:
    """Yield the parse cases of set `mgsm-exemplars`, in the order of the file.

    Raises:
        CorpusError: the file lacks one of its two literals, or an exemplar is not written as its language's wording
            says, or states another answer than the list of answers.
    """
    origin, data = _origin(source, fetch, EXEMPLARS)
    texts, answers = _literals(data)
    try:
        for language, of_language in texts.items():
            for key, exemplar in of_language.items():
                row = f"MGSM_EXEMPLARS[{language!r}][{key!r}]"
                expected = answers[int(key) - 1]
                question, solution, final = _exemplar(row, LANGUAGES[language], exemplar["q"], exemplar["a"], expected)
                message = {"reasoning_content": solution, "content": final}
                yield _case("parse", "mgsm-exemplars", f"{language}-{key}", origin, row, question, message)
    except (AttributeError, TypeError, KeyError, IndexError, ValueError) as fault:
        raise _error(EXEMPLARS, "language → key → q and a, and an answer for each key", repr(fault)) from fault


def _exemplar(row: str, wording: Wording, question: str, answer: str, expected: int) -> tuple[str, str, str]:
    """Return question, solution and final sentence without labels."""
    for text, label in ((question, wording.question), (answer, wording.answer)):
        if not text.startswith(label):
            raise _error(f"{EXEMPLARS}: {row}", f"a text that begins with {label!r}", repr(text))
    answer = answer.removeprefix(wording.answer)
    place = answer.rfind(wording.final)
    stated = NUMBER.search(answer, place + len(wording.final)) if place >= 0 else None
    if stated is None or int(stated[0].replace(",", "")) != expected:
        found = repr(answer[max(place, 0) :])
        raise _error(f"{EXEMPLARS}: {row}", f"a last sentence {wording.final!r} with {expected}", found)
    return question.removeprefix(wording.question), answer[:place].rstrip(), answer[place:]


def _literals(data: bytes) -> tuple[dict[str, Any], Any]:
    """Return the two constants the importer reads, from the syntax tree."""
    found = {}
    try:
        for statement in ast.parse(data.decode()).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="MGSM_EXEMPLARS" | "EXEMPLAR_NUMBER_ANSWERS" as name)]):
                    found[name] = ast.literal_eval(statement.value)
        return found["MGSM_EXEMPLARS"], found["EXEMPLAR_NUMBER_ANSWERS"]
    except (SyntaxError, ValueError, KeyError, RecursionError) as fault:
        raise _error(EXEMPLARS, "the literals MGSM_EXEMPLARS and EXEMPLAR_NUMBER_ANSWERS", repr(fault)) from fault


def _rows(data: bytes, path: str) -> Iterator[tuple[int, str, str]]:
    """Yield index, question and answer of each line that is not empty. No quoting: a quote is part of the text."""
    for index, line in enumerate(data.decode().split("\n")):
        if not line:
            continue
        question, *answers = line.split("\t")
        if len(answers) != 1 or not question or not ANSWER.fullmatch(answers[0]):
            raise _error(f"{path}:{index + 1}", "a question, one tab and a whole number", repr(line))
        yield index, question, answers[0]


def _case(
    kind: str,
    set_name: str,
    name: int | str,
    origin: Origin,
    row: str,
    question: str,
    message: dict[str, str] | None = None,
) -> Case:
    request = json_text({"messages": [{"role": "user", "content": question}]})
    text = None if message is None else json_text(message)
    return Case(kind, set_name, f"{set_name}-{name}", origin, row, request=request, message=text)


def _origin(source: Source, fetch: Fetch, path: str) -> tuple[Origin, bytes]:
    data = fetch(source, path).read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        raise _error(path, "UTF-8", str(fault)) from fault
    return Origin(DATASET, source.source, path, hashlib.sha256(data).hexdigest(), source.license), data


def _error(where: str, expected: str, found: str) -> CorpusError:
    return CorpusError(
        f"{where}: expected {expected}, got {found[:160]}",
        next_step="Compare the pinned file with the rules in bellwether/corpora/mgsm.py.",
    )
