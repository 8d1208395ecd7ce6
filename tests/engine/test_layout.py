# SPDX-License-Identifier: Apache-2.0
"""Rows in work hold what stored rows hold."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from pens.engine.gradient_buffers import GradientBuffers
from pens.engine.layout import Layout

shapes = st.lists(st.integers(1, 5), max_size=4).map(torch.Size)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """A stored layout, and one in work with some tensors turned round."""
    drawn = draw(st.lists(shapes, min_size=1, max_size=6))
    split = draw(st.integers(1, len(drawn)))
    named = {f"t{i}": shape for i, shape in enumerate(drawn)}
    stored = Layout.stored(dict(list(named.items())[:split]), dict(list(named.items())[split:]))
    orders = {n: draw(st.permutations(range(len(s)))) for n, s in named.items() if draw(st.booleans())}
    return stored, stored.in_work({n: tuple(order) for n, order in orders.items()})


@given(layouts())
def test_a_row_comes_back_from_work_as_it_went(pair: tuple[Layout, Layout]) -> None:
    stored, in_work = pair
    rows = torch.randn(2, stored.size)
    working = rows[:, in_work.columns_of(stored)]
    assert torch.equal(working[:, stored.columns_of(in_work)], rows)
    mine, theirs = in_work.tensors(working), stored.tensors(rows)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@given(layouts(), st.data())
def test_gradients_are_collected_in_their_rows_wherever_they_were_computed(
    pair: tuple[Layout, Layout], data: st.DataObject
) -> None:
    for layout in pair:
        tensors = layout.tensors(torch.randn(2, layout.size))
        rows = torch.zeros(2, layout.num_trained)
        gradients = []
        for place in layout.trained:
            made = tensors[place.name]
            if data.draw(st.booleans()):  # by a kernel that writes it in place
                place.view(rows).copy_(made)
                made = place.view(rows)
            gradients.append(made)
        GradientBuffers().collect(layout.trained, rows, gradients)
        for place in layout.trained:
            assert torch.equal(place.view(rows), tensors[place.name])
            assert layout.parts(rows)[place.name].data_ptr() == place.view(rows).data_ptr()


@given(layouts())
def test_in_work_every_tensor_begins_on_a_boundary_and_trained_ones_come_first(pair: tuple[Layout, Layout]) -> None:
    _, in_work = pair
    assert all(place.start % 32 == 0 for place in (*in_work.trained, *in_work.kept))
    assert all(place.stop <= in_work.num_trained for place in in_work.trained)
    assert all(place.start >= in_work.num_trained for place in in_work.kept)
