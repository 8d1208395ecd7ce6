# SPDX-License-Identifier: Apache-2.0
"""Settings that fit a federation's size, and files that say the same when they are read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import RunDirError, SettingsError
from pens.experiment.presets import PRESETS
from pens.methods.method import Participants
from pens.methods.names import check_methods
from pens.network.certificates.authority import Authority
from pens.network.federation.loopback import (
    FederationRequest,
    choose_interval,
    fit_settings,
    free_ports,
    make_federation,
    read_federation,
    usual_waits,
)
from pens.network.operating.peer_config import read_peer_config
from pens.settings.tree import Settings
from tests.methods.specs import NETWORKED

names = st.sampled_from(sorted(name for name, of in PRESETS.items() if of.settings.scenario.partition == "rotation"))
"""Presets whose clusters may have any size; those of the others say how many peers there are."""
methods = st.sampled_from(NETWORKED)
numbers = st.integers(2, 60).map(lambda half: 2 * half)


@given(name=names, method=methods, peers=numbers)
def test_what_a_preset_says_is_lowered_until_it_fits_and_never_raised(name: str, method: str, peers: int) -> None:
    base = PRESETS[name].settings
    settings, words = fit_settings(base, {}, peers, method)
    check_methods(settings, NETWORKED, Participants(peers, peers // 2))
    pairs = {
        "n_peers": (base.gossip.n_peers, settings.gossip.n_peers),
        "n_sampled": (base.pens.n_sampled, settings.pens.n_sampled),
        "m": (base.pens.m, settings.pens.m),
    }
    for key, (before, after) in pairs.items():
        assert after <= before
        assert (f"{key} {before} → {after}" in words) == (after < before)
    assert settings.pens.admit
    assert settings.gossip.schedule == "async"


def test_a_setting_that_was_given_stays_or_is_refused() -> None:
    digits = PRESETS["digits"].settings
    settings, words = fit_settings(digits, {"pens.n_sampled": 7, "admit": False}, 8, "pens")
    assert (settings.pens.n_sampled, settings.pens.admit) == (7, False)
    assert "n_sampled" not in words
    with pytest.raises(SettingsError, match="n_sampled = 8, but each peer can hear at most 7 others"):
        fit_settings(digits, {"n_sampled": 8}, 8, "pens")
    with pytest.raises(SettingsError, match="use --peers"):
        fit_settings(digits, {"scenario.peers": 8}, 8, "pens")
    with pytest.raises(SettingsError, match="merge = 'weighted' needs the senders' numbers of training samples"):
        fit_settings(digits, {"merge": "weighted"}, 8, "random")
    with pytest.raises(SettingsError, match="2 rotations need the same number of peers each"):
        fit_settings(digits, {}, 7, "pens")
    with pytest.raises(SettingsError, match="are 15 peers together, but peers = 8: set peers = 15 or other sizes"):
        fit_settings(PRESETS["fedfomo"].settings, {}, 8, "fedfomo")


@given(name=names, method=methods, peers=numbers, seconds=st.floats(10, 3600), cores=st.integers(1, 64))
def test_the_interval_makes_the_peers_need_the_time_that_they_have(
    name: str, method: str, peers: int, seconds: float, cores: int
) -> None:
    settings, _ = fit_settings(PRESETS[name].settings, {}, peers, method)
    needed = choose_interval(settings, method, seconds, cores) * usual_waits(settings, method)
    assert needed >= 0.9 * seconds or choose_interval(settings, method, seconds, cores) < 0.01


@pytest.mark.parametrize("method", NETWORKED)
def test_a_federation_reads_as_it_was_written(tmp_path: Path, method: str) -> None:
    wish = FederationRequest(
        "cifar-10-small", {"test_samples": None, "lr": 0.5}, peers=12, method=method, seed=3, minutes=1.0
    )
    federation, lowered = make_federation(tmp_path / "up", wish)
    assert "n_peers" not in lowered
    assert read_federation(tmp_path / "up") == federation
    assert [member.name for member in federation.members] == [f"peer-{number:02}" for number in range(12)]
    for number, member in enumerate(federation.members):
        config = read_peer_config(member.config)
        assert config.settings == federation.settings
        assert (config.data.share, config.peer.method, config.peer.seed) == (number, method, 3)
    assert federation.settings.scenario.test_samples is None


def test_own_settings_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('preset = "digits"\nlr = 0.25\n')
    wish = FederationRequest(str(tmp_path / "mine.toml"), {}, peers=4, method="pens", seed=0, interval=0.5)
    federation, _ = make_federation(tmp_path / "up", wish)
    assert federation.settings.training.lr == 0.25
    assert federation.settings.timing.interval == 0.5
    assert federation.settings.training != Settings().training


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(RunDirError, match="not empty"):
        make_federation(tmp_path, FederationRequest("digits", {}, 4, "pens", 0))
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    with pytest.raises(RunDirError, match="no federation"):
        read_federation(tmp_path)


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        (FederationRequest("digits", {}, 8, "oracle", 0), "choose from pens, pens"),
        (FederationRequest("digits", {}, 8, "pens", 0, minutes=-1.0), "above 0"),
        (FederationRequest("digits", {}, 8, "pens", 0, minutes=1.0, interval=1.0), "--interval must not be set"),
        (FederationRequest("digits", {}, 8, "pens", 0, interval=0.0), "interval = 0.0"),
        (FederationRequest("digits", {}, 2, "pens", 0), "use at least 3 peers"),
        (
            FederationRequest("digits", {}, 100_000, "pens", 0),
            "peers = 100000: each needs two ports.*at most 6000 peers",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, wish: FederationRequest, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        make_federation(tmp_path / "up", wish)
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_what_was_made_before_a_failure_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    issued: list[str] = []

    def issue(self: Authority, name: str) -> None:
        issued.append(name)
        if len(issued) == 3:
            raise OSError("no space left on device")

    monkeypatch.setattr(Authority, "issue", issue)
    folder = tmp_path / "runs" / "up"
    if is_there:
        folder.mkdir(parents=True)
    with pytest.raises(OSError, match="no space left"):
        make_federation(folder, FederationRequest("digits", {}, 4, "pens", 0))
    assert list(tmp_path.rglob("*")) == ([folder.parent, folder] if is_there else [])


def test_ports_are_free_and_different() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
