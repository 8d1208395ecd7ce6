# SPDX-License-Identifier: Apache-2.0
"""How a peer is doing, on a port of its own machine: `/healthz` for a service manager, `/metrics` for Prometheus.

The node offers its `Vitals`, plain numbers, by a function; this module calls it for each request, and stores nothing.
It answers from threads beside the event loop, so that a peer whose loop is stuck still tells how long ago its last
update was. Only this machine can connect: other members cannot read what a peer tells here.

    GET /healthz    200, or 503 where the node says that something is wrong, with a JSON object either way. Where the
                    node cannot work with all members: 200 with "status": "degraded", since a restart would not help
    GET /metrics    the text that Prometheus reads; counters start at 0 with each start of the process
"""

from __future__ import annotations

import json
import logging
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pens.errors import AddressError
from pens.tasks.metric import ACCURACY, Measure

log = logging.getLogger("pens.network.monitor")

_LOCAL = "127.0.0.1"
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a node tells of itself at one moment."""

    name: str
    version: str
    """Version of pens."""
    phase: str
    """The phase of the peer: "joining", "starting", "searching", …"""
    step: int
    """Completed updates, including those before a restart."""
    seconds_since_update: float | None = None
    """Seconds since the last update; None before the first."""
    members: Mapping[str, int] = field(default_factory=dict)
    """The number of members in each state: alive, suspect, …"""
    neighbours: tuple[str, ...] = ()
    """Names of the neighbours."""
    done: bool = False
    """The peer has done its updates, or stopped early, and serves its model to the others."""
    models_in: int = 0
    models_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_relayed: int = 0
    """Carried between two other members, as their relay."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Models and calls refused, by reason."""
    val_accuracy: float | None = None
    val_loss: float | None = None
    first_val_accuracy: float | None = None
    """Accuracy after the first training, before any model of another peer was merged."""
    kept_val_accuracy: float | None = None
    """Accuracy of the model that the peer keeps."""
    alone_val_accuracy: float | None = None
    """Accuracy of a model trained on the peer's own data alone; None until that is known."""
    val_gain: float | None = None
    """By how much the kept model is better than that one; above zero is better, whatever is measured."""
    progress: tuple[int, int] = (0, 0)
    """What is done of this phase, and how much there is at most: samplings in step 1, updates elsewhere."""
    training_s: float = 0.0
    """Seconds spent in jobs since the start of the process."""
    trouble: str | None = None
    """What is wrong with the node; None: nothing."""
    degraded: str | None = None
    """Why the node cannot work with all members; None: it can."""
    undone: int = 0
    """Updates that were undone, because the loss was not a finite number."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """How others' models did, by verdict; empty where they are trusted."""
    distrusted: tuple[str, ...] = ()
    """Members of whom nothing is taken for a while, because their models kept hurting."""
    misfits: int = 0
    """The number of members whose models the node cannot use, because they have another network."""
    why_apart: Mapping[str, str] = field(default_factory=dict)
    """Some of them, and why each does not fit."""
    fingerprint: str = ""
    """Of what the peer needs to agree on with others: the same at all members that fit."""
    expiry: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds until certificates, authorities and revocation lists end, by what each is and whose."""
    metric: Measure = ACCURACY
    """What is measured: wherever accuracy is said, the main metric of the task."""


class Monitor:
    """The local server. `start` listens, `stop` closes the port; it can be used as a context, too."""

    def __init__(self, port: int, vitals: Callable[[], Vitals]) -> None:
        """`port` 0: any that is free. `vitals`: called from other threads."""
        self._port, self._vitals = port, vitals
        self._server: _Server | None = None

    def __enter__(self) -> Monitor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The real port, once the monitor is started."""
        return int(self._server.server_address[1]) if self._server else self._port

    @property
    def url(self) -> str:
        return f"http://{_LOCAL}:{self.port}"

    def start(self) -> None:
        try:
            self._server = _Server(self._port, self._vitals)
        except OSError as error:
            raise AddressError(
                f"peer.metrics_port = {self._port}: the monitor cannot listen there on {_LOCAL}: "
                f"{error.strerror or error}. Set it to another port, or to 0 for any that is free"
            ) from None
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="monitor", daemon=True).start()
        log.info("monitor listens", extra={"url": self.url})

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, vitals: Callable[[], Vitals]) -> None:
        super().__init__((_LOCAL, port), _Request)
        self.vitals = vitals
        self.registry = CollectorRegistry()
        self.registry.register(_Metrics(vitals))

    def server_bind(self) -> None:
        """Bind without looking up the name of the address as an HTTPServer does: that can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOCAL, self.server_address[1]


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        pages = {"/healthz": self._health, "/metrics": self._metrics}
        page = pages.get(self.path.partition("?")[0])
        if not page:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there are /healthz and /metrics\n")
            return
        try:
            page()
        except ConnectionError:
            log.debug("caller hung up", extra={"path": self.path})

    def _health(self) -> None:
        vitals = self.server.vitals()
        status = HTTPStatus.SERVICE_UNAVAILABLE if vitals.trouble else HTTPStatus.OK
        self._answer(status, "application/json", json.dumps(_health(vitals), ensure_ascii=False).encode() + b"\n")

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)


def _health(vitals: Vitals) -> dict[str, object]:
    return {
        "healthy": vitals.trouble is None and vitals.degraded is None,
        "status": "unhealthy" if vitals.trouble else "degraded" if vitals.degraded else "healthy",
        "trouble": vitals.trouble or vitals.degraded,
        "name": vitals.name,
        "version": vitals.version,
        "phase": vitals.phase,
        "step": vitals.step,
        "progress": {"done": vitals.progress[0], "most": vitals.progress[1]},
        "seconds_since_update": vitals.seconds_since_update,
        "members": dict(vitals.members),
        "agreement": {"fingerprint": vitals.fingerprint, "does_not_fit": dict(vitals.why_apart)},
        "neighbours": list(vitals.neighbours),
        "distrusted": list(vitals.distrusted),
        "updates_undone": vitals.undone,
        "done": vitals.done,
        "metric": asdict(vitals.metric),
        vitals.metric.key("val_accuracy"): vitals.val_accuracy,
        vitals.metric.key("kept_val_accuracy"): vitals.kept_val_accuracy,
        vitals.metric.key("first_val_accuracy"): vitals.first_val_accuracy,
        vitals.metric.key("alone_val_accuracy"): vitals.alone_val_accuracy,
        "gain": vitals.val_gain,
        "models": {"in": vitals.models_in, "out": vitals.models_out},
        "bytes": {"in": vitals.bytes_in, "out": vitals.bytes_out},
    }


class _Metrics(Collector):
    """Vitals as metric families, made for each request."""

    def __init__(self, vitals: Callable[[], Vitals]) -> None:
        self._vitals = vitals

    def describe(self) -> Iterator[Metric]:
        """Describe nothing: otherwise registering would call for vitals before the first request."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        v = self._vitals()
        peer = GaugeMetricFamily("pens_info", "The peer.", labels=("name", "version"))
        peer.add_metric((v.name, v.version), 1)
        yield peer
        yield _by("phase", GaugeMetricFamily, "pens_phase", "1 for the phase of the peer.", {v.phase: 1})
        yield GaugeMetricFamily("pens_healthy", "1 if /healthz answers 200, else 0.", float(v.trouble is None))
        yield GaugeMetricFamily("pens_degraded", "1 if /healthz says degraded, else 0.", float(v.degraded is not None))
        yield GaugeMetricFamily(
            "pens_members_of_another_network", "Members whose models the peer cannot use.", v.misfits
        )
        yield GaugeMetricFamily("pens_step", "Completed updates, including those before a restart.", v.step)
        done, most = v.progress
        yield GaugeMetricFamily("pens_progress_ratio", "Share of the phase that is done.", done / most if most else 0.0)
        yield GaugeMetricFamily("pens_neighbours", "Neighbours that the peer selected.", len(v.neighbours))
        yield _by("state", GaugeMetricFamily, "pens_members", "Members by state.", v.members)
        models, sizes = {"in": v.models_in, "out": v.models_out}, {"in": v.bytes_in, "out": v.bytes_out}
        yield _by("direction", CounterMetricFamily, "pens_models", "Models received and sent.", models)
        yield _by("direction", CounterMetricFamily, "pens_bytes", "Bytes received and sent.", sizes)
        relayed = "Bytes carried between two other members, as their relay."
        yield CounterMetricFamily("pens_relayed_bytes", relayed, v.bytes_relayed)
        yield _by(
            "reason", CounterMetricFamily, "pens_refusals", "Models and calls that were refused, by reason.", v.refusals
        )
        yield CounterMetricFamily("pens_updates_undone", "Updates undone, the loss was not a finite number.", v.undone)
        yield GaugeMetricFamily("pens_members_dropped", "Members whose models kept hurting.", len(v.distrusted))
        yield _by("verdict", CounterMetricFamily, "pens_models_judged", "Received models by how they did.", v.verdicts)
        ends = GaugeMetricFamily(
            "pens_expiry_seconds", "Seconds until it ends; negative after that.", labels=("kind", "of")
        )
        for key, seconds in v.expiry.items():
            ends.add_metric(key, seconds)
        yield ends
        yield CounterMetricFamily("pens_training_seconds", "Seconds spent in jobs.", v.training_s)
        if v.seconds_since_update is not None:
            yield GaugeMetricFamily("pens_update_age_seconds", "Seconds since the last update.", v.seconds_since_update)
        what, how = v.metric.title, "0 to 1" if v.metric.unit == "%" else f"in {v.metric.unit or 'its own unit'}"
        how += "" if v.metric.higher_is_better else ", lower is better"
        if v.val_accuracy is not None:
            yield GaugeMetricFamily(
                v.metric.key("pens_validation_accuracy"), f"{what} after the last update, {how}.", v.val_accuracy
            )
        kept = {"kept": v.kept_val_accuracy, "first training": v.first_val_accuracy, "alone": v.alone_val_accuracy}
        known = {model: accuracy for model, accuracy in kept.items() if accuracy is not None}
        about = f"{what} of the kept model, after the first training, and of a model trained alone; {how}."
        yield _by("model", GaugeMetricFamily, v.metric.key("pens_compared_validation_accuracy"), about, known)
        if v.val_gain is not None:
            yield GaugeMetricFamily("pens_gain_over_alone", "How much better the kept model is, above 0.", v.val_gain)
        if v.metric != ACCURACY:
            better = "higher" if v.metric.higher_is_better else "lower"
            named = {"metric": v.metric.name, "unit": v.metric.unit, "better": better}
            metric = GaugeMetricFamily("pens_metric", "What scores are, and which are better.", labels=tuple(named))
            metric.add_metric(tuple(named.values()), 1)
            yield metric
        if v.val_loss is not None:
            yield GaugeMetricFamily("pens_validation_loss", "Loss after the last update.", v.val_loss)


def _by(
    label: str,
    family: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    about: str,
    values: Mapping[str, float],
) -> Metric:
    metric = family(name, about, labels=(label,))
    for key, value in values.items():
        metric.add_metric((key,), value)
    return metric
