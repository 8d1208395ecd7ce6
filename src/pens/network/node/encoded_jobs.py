# SPDX-License-Identifier: Apache-2.0
"""Jobs as plain data: what a peer wants computed, as a node's state on disk has it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from pens.learning.jobs import decode_blend, decode_update, encode_blend, encode_update
from pens.protocol.messages import (
    Ask,
    Blend,
    Compare,
    Counts,
    Distances,
    Drop,
    Losses,
    ModelRef,
    PeerId,
    Query,
    Update,
    Verdicts,
    received_in,
)

PeerJob = Compare | Ask | Blend | Update | Drop
"""Something that a peer wants computed; `Drop` of a model that it made, once that is computed and used."""


def encode_job(job: PeerJob) -> list[Any]:
    """A job as plain data."""
    match job:
        case Compare(models, m):
            return ["compare", _plain(models), m]
        case Ask(name, Counts(), when):
            return ["ask", name, when]
        case Ask(name, Verdicts(), when):
            return ["ask", name, when, "verdicts"]
        case Ask(name, Losses(models, beside, on, own), when):
            return ["ask", name, when, _plain(models), _plain(beside), on, own]
        case Blend():
            return ["blend", *encode_blend(job)]
        case Drop(model, why):
            return ["drop", list(model), why]
        case Ask(name, Distances(models, by), when):
            return ["ask", name, when, _plain(models), by]
        case Update():
            return ["update", *encode_update(job)]
        case _:
            raise AssertionError(f"{job} is not a job")


def decode_job(data: list[Any]) -> PeerJob:
    """The job that `encode_job` turned into plain data; ValueError where it is none."""
    job = _decoded(data)
    TypeAdapter(type(job)).validate_json(json.dumps(asdict(job)), strict=True)
    return job  # and not what was validated: as JSON, two queries without values are alike


def _decoded(data: list[Any]) -> PeerJob:
    """A job whose parts may be of any types."""
    what, *values = data
    if what == "compare":
        return Compare(_refs(values[0]), values[1])
    if what == "update":
        return decode_update(values)
    if what == "blend":
        return decode_blend(values)
    if what == "drop":
        (model,) = _refs(values[:1])
        return Drop(model, values[1])
    name, when, *query = values
    return Ask(name, _query(query), when)


def _query(data: list[Any]) -> Query:
    match data:
        case []:
            return Counts()
        case ["verdicts"]:
            return Verdicts()
        case [models, by]:
            return Distances(_refs(models), by)
        case _:
            models, beside, *how = data
            return Losses(_refs(models), _refs(beside), *how)


def _plain(models: tuple[ModelRef, ...]) -> list[list[int]]:
    return [[ref.owner, ref.version] for ref in models]


def _refs(models: list[list[int]]) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), version) for owner, version in models)


def models_of(job: PeerJob) -> tuple[ModelRef, ...]:
    """The models that a job is about, received or made, once for each time that it names them."""
    match job:
        case Ask():
            return received_in(job.query)
        case Drop():
            return (job.model,)
        case _:
            return job.models
