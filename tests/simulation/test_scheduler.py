# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pens.protocol.messages import Answered, Event, ModelRef, PeerId, Pulled, Received, Start, Updated, Wake
from pens.simulation.scheduler import EventQueue

refs = st.builds(lambda o, v: ModelRef(PeerId(o), v), st.integers(0, 9), st.integers(0, 9))
notes = st.none() | st.integers() | st.dictionaries(st.text(max_size=2), st.lists(st.integers(), max_size=2))
events: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from([Start(), Wake(), Updated()]),
    st.builds(Received, refs, st.booleans(), notes),
    st.builds(lambda one, other, *said: Pulled((one, other), said), refs, refs),
    st.builds(lambda one, other, *said: Pulled((one, other), said), refs, refs, notes, notes),
    st.just(Pulled(())),
    st.builds(Answered, st.text(max_size=3), st.none()),
)
entries = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 9), events), max_size=30)


def drained(queue: EventQueue, end: float) -> list[tuple[float, PeerId, Event]]:
    found = []
    while upcoming := queue.next_before(end):
        found.append((queue.now, *upcoming))
    return found


@given(entries, st.floats(0, 12))
def test_events_come_in_order_of_time_then_of_arrival(items: list[tuple[float, int, Event]], end: float) -> None:
    queue = EventQueue()
    for delay, peer, event in items:
        queue.put(delay, PeerId(peer), event)
    due = [item for item in items if item[0] < end]
    assert drained(queue, end) == sorted(due, key=lambda item: item[0])
    assert queue.now == end


@given(entries, st.floats(0, 10))
def test_a_restored_queue_goes_on_where_it_was(items: list[tuple[float, int, Event]], stop: float) -> None:
    queue = EventQueue()
    for delay, peer, event in items:
        queue.put(delay, PeerId(peer), event)
    drained(queue, stop)
    other = EventQueue()
    other.restore(json.loads(json.dumps(queue.state())))
    for q in (queue, other):
        q.put(1.0, PeerId(1), Wake())
    assert drained(queue, 99) == drained(other, 99)


def test_events_at_the_same_time_come_in_the_order_in_which_they_were_put() -> None:
    """One at 2 from the start, one at 2 that is put at 1, and one at once when it is 2: in this order."""
    queue = EventQueue()
    queue.put(2.0, PeerId(1), Wake())
    queue.put(1.0, PeerId(2), Start())
    assert queue.next_before(9.0) == (2, Start())
    queue.put(1.0, PeerId(3), Updated())
    assert queue.next_before(9.0) == (1, Wake())
    queue.put(0.0, PeerId(4), Start())
    queue.put(0.5, PeerId(5), Start())
    assert queue.next_before(9.0) == (3, Updated())
    assert (queue.now, queue.next_before(9.0)) == (2.0, (4, Start()))
    assert queue.next_before(2.5) is None
    assert queue.now == 2.5
    assert queue.next_before(2.6) == (5, Start())


def test_what_is_to_happen_is_saved_in_order_whatever_it_is() -> None:
    """At 2 there are two events put for this time and one put at once, and at 9 there is one that was put first."""
    queue = EventQueue()
    model, other = ModelRef(PeerId(4), 7), ModelRef(PeerId(5), 8)
    queue.put(9.0, PeerId(1), Received(model))
    queue.put(2.0, PeerId(2), Start())
    queue.put(2.0, PeerId(3), Received(model, answer=True))
    assert queue.next_before(3.0) == (2, Start())
    queue.put(0.0, PeerId(0), Pulled((model, other)))
    state = json.loads(json.dumps(queue.state()))
    assert [[time, peer, *event] for time, _, peer, *event in state["entries"]] == [
        [2.0, 3, "received", 4, 7, True],
        [2.0, 0, "pulled", [4, 7], [5, 8]],
        [9.0, 1, "received", 4, 7],
    ]
    restored = EventQueue()
    restored.restore(state)
    assert restored.state() == queue.state()
    assert drained(restored, 99.0) == [
        (2.0, 3, Received(model, answer=True)),
        (2.0, 0, Pulled((model, other))),
        (9.0, 1, Received(model)),
    ]


def test_a_restored_queue_forgets_what_it_was_to_do() -> None:
    """A simulator lets each peer start at once, before it is restored."""
    saved, queue = EventQueue(), EventQueue()
    saved.put(1.0, PeerId(1), Wake())
    queue.put(0.0, PeerId(0), Start())
    queue.put(0.5, PeerId(0), Start())
    queue.restore(json.loads(json.dumps(saved.state())))
    assert drained(queue, 99.0) == [(1.0, 1, Wake())]


def test_the_clock_moves_to_the_end_that_was_asked_for_and_never_back() -> None:
    queue = EventQueue()
    assert queue.next_before(3.0) is None
    assert queue.now == 3.0
    assert queue.next_before(1.0) is None
    assert queue.next_before(float("inf")) is None
    assert queue.now == 3.0
    queue.put(1.0, PeerId(1), Wake())
    assert queue.next_before(4.0) is None  # "before" leaves out the end
    assert queue.next_before(4.1) == (1, Wake())
    assert queue.now == 4.0
