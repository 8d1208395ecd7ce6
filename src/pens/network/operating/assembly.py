# SPDX-License-Identifier: Apache-2.0
"""From a peer's file to its data, network, learners and node: the one place where the parts of a real peer meet."""

from __future__ import annotations

import logging
import secrets
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pens.data.own_sources import load_data, load_one, rules_of
from pens.data.samples import Dataset, Samples, check_alike, check_finite
from pens.data.scenarios import UNKNOWN, Federation, PeerData, own_parts
from pens.engine.batches import SampleStack
from pens.engine.devices import device_name, resolve_device
from pens.engine.training import Engine
from pens.errors import SettingsError
from pens.experiment.wiring import build_engine, first_model, new_executor, try_merging
from pens.inference.network_form import NetworkForm
from pens.learning.learners import Learners
from pens.methods.names import find_method, references_of
from pens.methods.reach import reach
from pens.methods.spec import RunSpec
from pens.nets import needs_num_classes
from pens.network.members.membership import Membership
from pens.network.members.notary import Notary
from pens.network.members.reachable import Reachable
from pens.network.members.rules import MembershipRules
from pens.network.node.audit import AuditLog
from pens.network.node.control import ControlRules
from pens.network.node.learning import Bench, Learning
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.operating.holding import Holding
from pens.network.operating.own_terms import for_trial, own_terms
from pens.network.operating.peer_config import PeerConfig, parse_address
from pens.network.transport.interface import MemberRecord, Transport
from pens.network.transport.terms import Terms
from pens.partitions.partition import build_federation, check_repeats, partition_of
from pens.parts import is_reference, load_function
from pens.protocol.messages import PeerId
from pens.protocol.peer import Peer
from pens.protocol.plan import Plan
from pens.tasks.task import check_data, check_targets, num_outputs, outputs_for, parts_of, task_of
from pens.version import VERSION

_log = logging.getLogger("pens.network.assembly")


def load_holding(config: PeerConfig) -> Holding:
    """The peer's data: its share of the scenario's, or what the user's own function returns."""
    if config.data.source is not None:
        return _own_holding(config, config.data.source)
    settings, share = config.settings, config.data.share
    assert share is not None
    folder = config.path(config.data.data_dir) if config.data.data_dir else None
    if not settings.data.is_own:
        partition_of(settings).check(settings)
    found, task = load_data(settings, folder), task_of(settings)
    if isinstance(found, Dataset):
        check_data(task, found)
        federation = build_federation(found, settings, config.peer.seed)
        check_repeats(found, settings, config.peer.seed, federation)
    else:
        federation = found.federation(config.peer.seed)
        check_data(task, federation)
    outputs = num_outputs(task, found if isinstance(found, Dataset) else federation)
    if share >= len(federation.peers):
        raise SettingsError(
            f"data.share = {share}, but {settings.data.source} has {len(federation.peers)} peers, numbered from 0"
        )
    _check_has_classes(config)
    if config.data.num_classes not in (None, outputs):
        raise SettingsError(
            f"data.num_classes = {config.data.num_classes}, but {settings.data.source} has {outputs} classes: "
            "leave it out where data.share is set"
        )
    cluster = UNKNOWN if federation.clusters is None else federation.clusters[share]
    name = None if cluster == UNKNOWN else federation.cluster_names[cluster]
    return Holding(
        federation.peers[share],
        federation.tests[federation.tested_on[share]],
        outputs,
        name,
        federation.class_names,
        federation.preparation.of_peer(share),
    )


def _own_holding(config: PeerConfig, source: str) -> Holding:
    """What this peer alone holds: from a function of the user's, or from a file or folder."""
    rules = rules_of(config.settings)
    if not is_reference(source):
        alone = load_one(config.peer.name, str(config.path(Path(source))), rules, config.peer.seed)
        return _of_one(config, alone)
    returned = _call(load_function(source, "data.source", config.folder), source)
    if _is_usual(returned):
        return _counted(config, *_as_data(returned, source))
    return _of_one(config, Federation.gathered({config.peer.name: returned}, None, config.peer.seed, rules.reading))


def _of_one(config: PeerConfig, alone: Federation) -> Holding:
    """What a peer holds of the federation that it makes alone."""
    data, test, names = alone.peers[0], alone.tests[0], alone.class_names
    if names and not config.settings.data.classes:
        raise SettingsError(
            "the labels are texts or codes, and other peers may have others: list all classes of the federation as "
            "`classes` in section [data], in the same order at all peers, so that a label means the same at each. "
            f"Here there are {', '.join(map(repr, names))}"
        )
    if names:
        return Holding(data, test, len(names), class_names=names, preparation=alone.preparation)
    return replace(_counted(config, data, test), preparation=alone.preparation)


def _counted(config: PeerConfig, data: PeerData, test: Samples | None) -> Holding:
    """Samples, checked, and how many classes or outputs there are."""
    check_finite(own_parts(f"peer {config.peer.name}", data, test))
    parts = {"training": data.train, "validation": data.val, **({"test": test} if test else {})}
    check_targets(task := task_of(config.settings), parts_of(f"peer {config.peer.name}'s", data, test))
    check_alike(list(parts.values()), [f"the {name} data" for name in parts].__getitem__)
    _check_has_classes(config)
    if not task.has_classes:
        return Holding(data, test, outputs_for(task, [part.y for part in parts.values()]))
    highest = {name: int(part.y.max(initial=0)) for name, part in parts.items() if len(part)}
    return Holding(data, test, _num_classes(config, highest))


def _check_has_classes(config: PeerConfig) -> None:
    """Refuse a number of classes for a task that has none."""
    task = task_of(config.settings)
    if config.data.num_classes is not None and not task.has_classes:
        raise SettingsError(
            f"data.num_classes = {config.data.num_classes}, but the task {task.name} has no classes: leave it out"
        )


def _is_usual(returned: Any) -> bool:
    """Whether a function returned samples, and nothing that has to be read and split first."""
    return isinstance(returned, PeerData) or (
        isinstance(returned, tuple) and all(isinstance(part, Samples) for part in returned)
    )


def _call(function: Callable[[], Any], source: str) -> Any:
    """Call the user's own function; where it fails, raise one sentence, and put the traceback into the log."""
    try:
        return function()
    except Exception as error:
        _log.debug("data.source failed", exc_info=True)
        frames = traceback.extract_tb(error.__traceback__)[1:]
        code = getattr(function, "__code__", None)
        own = [frame for frame in frames if code and frame.filename == code.co_filename]
        where = "".join(f", at {frame.filename}:{frame.lineno}" for frame in (own or frames)[-1:])
        raise SettingsError(
            f"data.source = {source!r} failed: {type(error).__name__}: {error}{where}. "
            "Call it in Python to see why; peer.log_level = 'DEBUG' logs the traceback"
        ) from error


def _num_classes(config: PeerConfig, highest: Mapping[str, int]) -> int:
    """Classes of the whole federation, which a peer's own labels cannot tell. `highest`: highest label of each part."""
    part = max(highest, key=lambda name: highest[name])
    stated, label = config.data.num_classes, highest[part]
    if stated is None and ((model := _own_model(config)) is None or needs_num_classes(model)):
        raise SettingsError(
            f"data.num_classes is not set: labels here go up to {label}, but those of other peers may go further, and "
            "peers with networks of different sizes cannot use each other's models: set num_classes in section [data] "
            "to the number of classes in the whole federation, the same at all peers"
        )
    if stated is not None and label >= stated:
        raise SettingsError(
            f"data.num_classes = {stated}, so labels are 0 to {stated - 1}, but the {part} data have label {label}: "
            "raise num_classes at all peers, or correct the labels"
        )
    return stated or 1 + label


def _as_data(returned: Any, source: str) -> tuple[PeerData, Samples | None]:
    if isinstance(returned, PeerData):
        return returned, None
    if isinstance(returned, tuple) and len(returned) in (2, 3) and all(isinstance(part, Samples) for part in returned):
        return PeerData(returned[0], returned[1]), returned[2] if len(returned) == 3 else None
    raise SettingsError(
        f"data.source = {source!r} returned a {type(returned).__name__}: "
        "expected pens.PeerData, or (train, val) or (train, val, test) of pens.Samples"
    )


def build_node(
    config: PeerConfig,
    holding: Holding,
    transport: Transport,
    notary: Notary,
    number: Callable[[str], PeerId],
    bench: Bench,
) -> Node:
    """A node, ready to run."""
    about = config.peer
    spec = _spec(config)
    settings = spec.settings
    device = resolve_device(about.device)
    me = number(about.name)
    engine = _engine(config, spec, holding, device)
    try_merging(spec, engine, knows_samples=False)
    model = first_model(engine, spec.settings, spec.seed, me)
    test = SampleStack([holding.test], device) if holding.test else None
    sizes = len(holding.data.train), len(holding.data.val)
    learners = _learners(engine, spec, model, holding, device, me)
    plan = spec.plan(*sizes, num_peers=settings.scenario.peers)
    reachable = Reachable(lambda others: reach(spec.method, me, others, ()))
    folder = PeerFolder(config.path(about.state))
    folder.create(_card(config, holding, plan, me, device))
    folder.keep_preparation(holding.preparation.to_json() if holding.preparation.standards else None)
    return Node(
        Peer(me, about.seed, plan, reachable, tries_state=True),
        reachable,
        Learning(me, learners, bench, settings.gossip.wire, test, task_of(settings).measure),
        _membership(config, notary),
        transport,
        number,
        NodeRules(
            wait_for=about.wait_for,
            linger_s=about.linger_s,
            gossip_s=about.gossip_s,
            max_held=about.max_held,
        ),
        folder,
        advertise=parse_address(about.advertise) if about.advertise else None,
        control=ControlRules.of(config.settings, spec.seed, model, *sizes) if about.compare_alone else None,
        terms=replace(own_terms(spec, holding, engine.network.stored), relays=about.relay),
        audit=_audit_log(config) if about.audit else None,
    )


def trial_terms(config: PeerConfig, holding: Holding) -> Terms:
    """What this peer would say of itself, for a process that only compares: nothing is trained or written."""
    spec = _spec(config)
    engine = _engine(config, spec, holding, resolve_device(config.peer.device))
    return for_trial(own_terms(spec, holding, engine.network.stored))


def _audit_log(config: PeerConfig) -> AuditLog:
    about = config.peer
    return AuditLog(config.path(about.state) / "audit.jsonl", about.audit_mb << 20, about.audit_files)


def _membership(config: PeerConfig, notary: Notary) -> Membership:
    about = config.peer
    rules = MembershipRules(view=about.view, gossip_s=about.gossip_s, suspect_s=about.suspect_s, drop_s=about.drop_s)
    me = MemberRecord(about.name, about.own_address, incarnation=1, heartbeat=0)
    bootstrap = [parse_address(text) for text in about.bootstrap]
    return Membership(me, secrets.randbits(63), rules, notary, time.time, bootstrap)


def _spec(config: PeerConfig) -> RunSpec:
    """What the peer is told to do. Real peers do not trust others' models, unless their file says so."""
    settings = config.settings
    if settings.trust.gate == "auto":
        settings = settings.replace({"trust.gate": "on"})
    return RunSpec.of(find_method(config.peer.method), settings, config.peer.seed)


def _learners(
    engine: Engine, spec: RunSpec, first: Tensor, holding: Holding, device: torch.device, me: PeerId
) -> Learners:
    rules = replace(spec.learning(), wire="fp32")  # others' models come rounded
    executor = new_executor(engine, [holding.data], device, task=task_of(spec.settings))
    return Learners(executor, 0, first[None], rules, [me])


def _engine(config: PeerConfig, spec: RunSpec, holding: Holding, device: torch.device) -> Engine:
    train = holding.data.train
    return build_engine(spec.settings, holding.num_classes, train, len(train), device, _own_model(config))


def _own_model(config: PeerConfig) -> Callable[..., nn.Module] | None:
    """What makes the user's own network; None: the setting `net` names it."""
    return load_function(config.peer.model, "peer.model", config.folder) if config.peer.model else None


def _card(config: PeerConfig, holding: Holding, plan: Plan, me: PeerId, device: torch.device) -> dict[str, Any]:
    """The content of peer.json."""
    own_parts = {"model": config.peer.model, "data": config.data.source}
    network = NetworkForm.of(
        config.settings, holding.num_classes, holding.data.train, _own_model(config), holding.class_names
    )
    return {
        "name": config.peer.name,
        "peer_id": me,
        "method": config.peer.method,
        **({"references": references} if (references := references_of([config.peer.method])) else {}),
        "seed": config.peer.seed,
        "cluster": holding.cluster,
        "settings": config.settings.model_dump(mode="json"),
        "data_sizes": {
            "train": len(holding.data.train),
            "val": len(holding.data.val),
            "test": len(holding.test) if holding.test else 0,
        },
        "network": network.to_json(),
        "preparation": holding.preparation.without_numbers.to_json(),
        "step1_epochs": plan.search.epochs if plan.search else None,
        "own_parts": [name for name, part in own_parts.items() if part is not None],
        "device": device_name(device),
        "started": time.time(),
        "version": VERSION,
    }
