"""Records that wait to be taken: by name, and bounded."""

from __future__ import annotations

from bellwether.scripted_engine.capture import Record, Store


def record(request_id: str, size: int = 1) -> Record:
    return Record(
        request_id=request_id,
        model="some/model",
        wire="vllm",
        route="Generate",
        read=dict,
        prompt=lambda: None,
        size=size,
        script=None,
        answered_by=None,
        prompt_tokens=0,
    )


def test_a_record_is_found_by_each_name_and_taken_once() -> None:
    store = Store()
    first, second = record("a-1"), record("a-2")
    store.add(first, ["a-1", "a"])
    store.add(second, ["a-2", "a"])

    assert store.named("a") == [first, second]
    assert store.take("a-1") == [first]
    assert store.take("a") == [second]
    assert store.take("a") == []


def test_the_oldest_goes_when_there_are_too_many_and_is_counted() -> None:
    store = Store(keep=2)
    records = [record(str(number)) for number in range(3)]
    dropped = [store.add(one, [one.request_id]) for one in records]

    assert dropped == [[], [], [records[0]]]
    assert (len(store), store.dropped) == (2, 1)
    assert store.take("0") == []


def test_the_oldest_go_when_they_are_too_large() -> None:
    """The last one stays, however large: whoever asked for it is about to take it."""
    store = Store(keep_bytes=10)
    small, large = record("small", 6), record("large", 11)
    store.add(small, ["small"])

    assert store.add(large, ["large"]) == [small]
    assert store.take("large") == [large]
    assert store.size == 0


def test_nothing_is_left_of_what_was_taken_or_dropped() -> None:
    """Names are as many as records, or memory grows by them. Of the 500 even ones the last nine wait."""
    store = Store(keep=10)
    for number in range(1000):
        store.add(record(f"{number}-x"), [f"{number}-x", f"{number}"])
        if number % 2:
            store.take(str(number))

    assert len(store) == 9
    assert len(store._named) == 18
    assert store.dropped == 491
