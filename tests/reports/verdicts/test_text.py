"""What a person reads."""

from __future__ import annotations

from bellwether.reports.verdicts.summary import Coverage, Listed, Side
from bellwether.reports.verdicts.text import MEANINGS, text
from verdict_rows import GATES, example, row, summed, verdicts

PARSE = {"kind": "parse", "what": "message", "field": "tool_calls", "first_layer": "streaming", "mode": "stream"}

WHOLE = """\
smg-1.13.0 (says it is 1.13.0)
5 replays of 5 cases for 2 checkpoints
exit 1: it differs (3 findings, 1 entry of lists)

verdict       replays  gate
match               1  pass    as the truth; 1 spell arguments in another way
regression          3  fail    differs from the truth
disputed            1  none    reference and vLLM differ: not judged (1 as vLLM)

Findings, earliest layer first
    layer      what                checkpoints        cases    replays
 1  template   prompt-ids          qwen3-8b, phi-4        2          2
 2  streaming  message tool_calls  qwen3-8b               1          1

1. template/prompt-ids: The prompt has another text
   The request was turned into another prompt than the checkpoint's own template writes; the model sees words
   it was not trained on.
   Try: Put the two texts beside each other at the place shown. Hand messages, tools and
   `chat_template_kwargs` to the template in the order and types the client sent them.
   qwen3-8b 1, phi-4 1
   truth: reference and vLLM agree on 1 of 2, on the others the reference alone
   on some of the cases engines differ from it too: sglang
   says what the gateway says: qwen3-8b: sglang 1
   smallest: phi-4/render/common/text-user-only [full], first difference at id 2 (lengths 4 and 4)
     ids   truth    1 2 3 4
           gateway  1 2 5 4
     text  truth    "a b c d"
           gateway  "a b C d"
   bellwether verify --target smg-1.13.0 --slug phi-4 --case render/common/text-user-only

2. streaming/message (tool_calls): Streamed, the answer is read otherwise
   The same output gives another message when it comes in chunks: what a client gets depends on how the engine
   cuts its stream. The calls differ: their number, a name, or the value of an argument.
   Try: Replay the plan shown; then `whole` and `per_token`. Both ends wrong: state between chunks. Only
   `whole` wrong: one event is read per chunk.
   truth: reference and vLLM agree
   layer: streaming or before it; what comes before was seen to be right in 0 of 1

Lists
what          entry            gate    why
stale-waiver  sglang >=0.5: a  fail    it agrees

Coverage of these checkpoints, in cases
target      kind      recorded    sent    judged
smg-1.13.0  render          18       5         4
Not judged: 1 disputed; 13 not sent.
"""


def test_a_report_reads_from_counts_to_findings_to_coverage() -> None:
    """The whole of a small one."""
    with verdicts(
        row("regression", fingerprint="f", engines=["sglang"]),
        row("regression", fingerprint="g", checkpoint="phi-4", standing="provisional"),
        row(
            "regression", fingerprint="s", **PARSE, case_id="parse/common/a", plan="size-2", localisation="at_or_before"
        ),
        row(respelled=True, case_id="render/common/b"),
        row("disputed", case_id="render/common/c", reason="vllm"),
    ) as rows:
        shown = text(
            summed(
                rows,
                examples={("g", "regression"): [example()]},
                alike={"f": "sglang 1"},
                coverage=[
                    Coverage("smg-1.13.0", "qwen3-8b", "render", 9, 4, 3, {"disputed": 1, "not_sent": 5}),
                    Coverage("smg-1.13.0", "phi-4", "render", 9, 1, 1, {"not_sent": 8}),
                ],
                lists=[Listed("stale-waiver", "sglang >=0.5: a", "it agrees", "fail")],
            )
        )
    assert shown == WHOLE


def test_a_clean_run_is_short() -> None:
    """No table of findings, no lists."""
    with verdicts(row()) as rows:
        shown = text(summed(rows))
    assert shown.splitlines()[:3] == [
        "smg-1.13.0 (says it is 1.13.0)",
        "1 replay of 1 case for 1 checkpoint",
        "exit 0: everything that was judged passes",
    ]
    assert "Findings" not in shown and "Lists" not in shown


def test_no_verdict_says_why() -> None:
    """Each reason that leads to exit 2."""
    with verdicts(row("missing", what=None)) as rows:
        line = text(summed(rows, stopped=True)).splitlines()[2]
    why = "1 replay without a measurement, the run stopped early, nothing was held against a truth"
    assert line == f"exit 2: no verdict ({why})"


def test_many_kinds_are_cut_and_counted() -> None:
    """The report stays a summary; the table is capped as well."""
    with verdicts(
        *(
            row("rejected", what="rejected", first_layer="api", code=f"c{n:02}", case_id=f"render/s/c{n}")
            for n in range(50)
        )
    ) as rows:
        shown = text(summed(rows), most=3)
    assert shown.count("\n   Try: ") == 1  # a rule is explained once
    assert "3. api/rejected (c02)" in shown and "4. api/rejected (c03)" not in shown
    assert "\nand 10 more\n" in shown
    assert "47 more kinds of findings, with examples: --json." in shown


def test_of_engines_one_finding_is_shown() -> None:
    """The gateway's come first, and engines' have a table."""
    engines = [row("engine_defect", engines=[f"e{n}"], fingerprint=f"e{n}", case_id=f"render/s/e{n}") for n in range(3)]
    with verdicts(*engines, row("regression", case_id="render/s/z")) as rows:
        shown = text(summed(rows))
    assert "\n1. template/prompt-ids" in shown and "\n2. engine_defect (e0)" in shown
    assert "\n3. engine_defect" not in shown
    assert "3  -         engine_defect e1" in shown


def test_white_space_and_controls_are_seen() -> None:
    """Texts in quotes; nothing of a gateway reaches the terminal as it is."""
    sides = (Side("content", "", " a\n\x1b[2J"), Side("answer", "result", None))
    with verdicts(row("regression", fingerprint="f", message="\x1b]0;title\x07")) as rows:
        shown = text(summed(rows, examples={("f", "regression"): [example(sides=sides)]}))
    assert "\x1b" not in shown and "\x07" not in shown
    assert '     content  truth    ""\n              gateway  " a\\n\\u001b[2J"\n' in shown
    assert "     answer   truth    result\n              gateway  (not seen)\n" in shown


def test_every_verdict_is_put_into_words() -> None:
    """The table of counts names all of them."""
    assert set(MEANINGS) == set(GATES)
