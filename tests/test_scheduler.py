from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pens.messages import Event, ModelRef, PeerId, Received, Start, Updated, Wake
from pens.scheduler import EventQueue

events: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from([Start(), Wake(), Updated()]),
    st.builds(lambda o, v: Received(ModelRef(PeerId(o), v)), st.integers(0, 9), st.integers(0, 9)),
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
