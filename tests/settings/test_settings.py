# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import SettingsError
from pens.experiment.presets import PRESETS
from pens.settings.reading import flat_keys, parse_assignments, parse_settings, stored_settings
from pens.settings.schema import epochs_of_step1
from pens.settings.seeds import parse_seeds, read_seeds
from pens.settings.tree import Settings


def refusal(text: str, **values: object) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings().replace(values)


def test_every_key_is_unique_over_all_sections() -> None:
    keys = [key for section in Settings().model_dump().values() for key in section]
    assert len(keys) == len(set(keys))


def test_settings_survive_their_own_dump() -> None:
    for preset in PRESETS.values():
        assert parse_settings(preset.settings.model_dump(mode="json")) == preset.settings


def test_short_and_long_keys_mean_the_same() -> None:
    assert Settings().replace({"m": 1}) == Settings().replace({"pens.m": 1})


def test_unknown_keys_are_refused_with_a_suggestion() -> None:
    refusal(r"unknown setting 'n_sample', did you mean 'n_sampled'\?", n_sample=3)
    with pytest.raises(SettingsError, match=r"did you mean 'pens.m'"):
        Settings().replace({"pens.mm": 3})
    with pytest.raises(SettingsError, match=r"unknown section \[gosip\], did you mean 'gossip'\?"):
        parse_settings({"gosip": {"rounds": 3}})


def test_values_out_of_bounds_are_refused_with_value_and_bound() -> None:
    refusal("peers = 1: .*greater than or equal to 2", peers=1)
    refusal("lr = -1: .*greater than 0", lr=-1)
    refusal("momentum = 1.0: .*less than 1", momentum=1.0)
    refusal("rotations = .*valid integer", rotations=[0, 4.5])
    refusal("rotations = .*same rotation", rotations=[0, 360])
    refusal("rotations", rotations=[])
    refusal("schedule = 'sync': .*'rounds' or 'async'", schedule="sync")
    refusal("epochs = 'many'", epochs="many")
    refusal("lr = nan", lr=float("nan"))


def test_assignments_are_read_as_toml_or_words() -> None:
    values = parse_assignments(["peers=8", "rotations=[0, 90]", "init=common", "lr=1e-2", "own_in_merge=false"])
    assert values == {"peers": 8, "rotations": [0, 90], "init": "common", "lr": 0.01, "own_in_merge": False}
    with pytest.raises(SettingsError, match="expected key=value"):
        parse_assignments(["peers"])
    with pytest.raises(SettingsError, match="did you mean 'peers'"):
        parse_assignments(["peer=3"])
    with pytest.raises(SettingsError, match="fresh is now step2_model: write first instead of true"):
        parse_assignments(["fresh=true"])


def test_the_score_of_step_one_is_read_by_its_older_name(tmp_path: Path) -> None:
    """From `--set`, a TOML file, Python, and a record."""
    file = tmp_path / "older.toml"
    file.write_text('[pens]\nscore_by = "accuracy"\n')
    older = {"pens": {**Settings().model_dump()["pens"], "score_by": "accuracy"}}
    del older["pens"]["score"]
    for read in (
        Settings().replace(parse_assignments(["score_by=accuracy"])),
        Settings().replace(parse_assignments(["pens.score_by=metric"])),
        Settings().replace(flat_keys(file)),
        Settings().replace({"score_by": "accuracy"}),
        stored_settings(older),
    ):
        assert read.pens.score == "accuracy"
    with pytest.raises(SettingsError, match=r"score = 'cosine': .*'cosine-weights', 'cosine-update' or 'l2'"):
        Settings().replace({"score": "cosine"})


def test_a_toml_file_is_read_by_section_or_flat(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("peers = 8\n[pens]\nm = 1\n")
    assert flat_keys(file) == {"peers": 8, "pens.m": 1}
    file.write_text("peers = \n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        flat_keys(file)
    with pytest.raises(SettingsError, match="no such file"):
        flat_keys(tmp_path / "none.toml")


def test_what_is_expected_follows_the_schedule_unless_it_is_said() -> None:
    """In rounds every peer is sampled as often as any other; in async those that send more are."""
    for schedule, auto in (("rounds", "uniform"), ("async", "received")):
        settings = Settings().replace({"schedule": schedule})
        assert settings.expected == settings.explicit.pens.expected == auto
        assert settings.replace({"expected": "uniform"}).expected == "uniform"
        assert settings.replace({"expected": "received"}).expected == "received"


@pytest.mark.parametrize(
    ("train", "authors", "ours"), [(100, 13, 7), (150, 9, 6), (200, 7, 5), (300, 5, 4), (400, 4, 3), (500, 3, 3)]
)
def test_step_one_epochs_by_the_authors_code_and_by_our_choice(train: int, authors: int, ours: int) -> None:
    """1250 // n + 1: the authors' n counts training samples, ours 100 validation samples, too (docs/decisions/0024)."""
    settings = Settings().replace({"train_per_peer": train, "val_per_peer": 100, "step1_samplings": 10})
    assert settings.step1_epochs == ours
    assert settings.replace({"step1_epochs": "authors"}).step1_epochs == authors
    assert settings.replace({"step1_epochs": "authors"}).explicit.pens.step1_epochs == authors
    for rule in ("auto", "authors"):
        assert settings.replace({"step1_epochs": rule, "step1_samplings": 1, "epochs": 3}).step1_epochs == 3
    assert settings.replace({"step1_epochs": 7}).step1_epochs == 7


def test_epochs_of_step_one_by_a_peers_own_samples() -> None:
    settings = Settings().replace({"step1_epochs": "auto", "train_per_peer": 400, "val_per_peer": 100})
    assert [epochs_of_step1(settings, train, 100) for train in (100, 400, 2200)] == [7, 3, 1]
    assert epochs_of_step1(settings.replace({"step1_epochs": 7}), 2200, 100) == 7
    assert epochs_of_step1(settings.replace({"step1_samplings": 1, "epochs": 3}), 2200, 100) == 3


def test_settings_do_not_change() -> None:
    with pytest.raises(SettingsError, match=r"peers = 3 is set .* use settings\.replace\(\{'peers': 3\}\)"):
        Settings().scenario.peers = 3


def test_the_papers_numbers_stand_in_the_presets() -> None:
    cifar, fashion = PRESETS["cifar-10"].settings, PRESETS["fashion-mnist"].settings
    for settings, samples in ((cifar, 400), (fashion, 500)):
        assert settings.scenario.peers == 100
        assert settings.scenario.train_per_peer == samples
        assert settings.scenario.val_per_peer == 100
        assert (settings.gossip.rounds, settings.gossip.n_peers) == (333, 20)
        assert (settings.pens.n_sampled, settings.pens.m) == (10, 2)
        assert settings.pens.step1_rounds * settings.pens.step1_samplings == 200
        assert (settings.training.optimizer, settings.training.lr, settings.training.batch_size) == ("adam", 1e-3, 8)


def test_a_setting_given_twice_or_with_a_comment_is_refused() -> None:
    with pytest.raises(SettingsError, match="the same setting: give it once"):
        Settings().replace({"peers": 4, "scenario.peers": 8})
    with pytest.raises(SettingsError, match="peers = '4#8'"):
        Settings().replace(parse_assignments(["peers=4#8"]))


def test_every_setting_is_explained() -> None:
    for section in Settings.model_fields.values():
        for key, setting in type(section.default).model_fields.items():
            assert setting.description, f"{key}: write what it means below it"


def test_a_setting_in_the_wrong_section_is_told_where_it_belongs() -> None:
    with pytest.raises(SettingsError, match=r"peers belongs to \[scenario\], not to \[training\]: write"):
        parse_settings({"training": {"peers": 3}})


def test_a_list_may_be_written_with_commas() -> None:
    for text in ("rotations=0,90", "scenario.rotations=0, 90", "rotations=[0, 90]", "rotations=[0,90]"):
        settings = Settings().replace(parse_assignments([text]))
        assert settings.scenario.rotations == (0, 90)
    assert Settings().replace(parse_assignments(["rotations=180"])).scenario.rotations == (180,)
    with pytest.raises(SettingsError, match="rotations = '0,x'"):
        Settings().replace(parse_assignments(["rotations=0,x"]))


@given(st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=20, unique=True))
def test_seeds_are_read_as_they_are_written(seeds: list[int]) -> None:
    assert read_seeds(",".join(map(str, seeds))) == tuple(seeds)


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_a_range_of_seeds_includes_both_ends(first: int, more: int) -> None:
    assert read_seeds(f"{first}-{first + more}") == tuple(range(first, first + more + 1))


def test_a_number_of_seeds_counts_from_zero_and_parts_combine() -> None:
    assert read_seeds("4") == read_seeds("0-3") == parse_seeds(4) == (0, 1, 2, 3)
    assert read_seeds(" 7, 0-2 ,5-5") == (7, 0, 1, 2, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("99999999999999999999", "at most 10,000 seeds are run at once"),
        ("1000000000", "at most 10,000 seeds"),
        ("0-1000000000", "at most 10,000 seeds"),
        ("1,99999999999999999999", "seed 99999999999999999999: give seeds of at most 9223372036854775807"),
        ("9" * 5000, "give a number of seeds"),
        ("3-1", "3-1 is empty, write the smaller seed first"),
        ("1,1", "different seeds"),
        ("0", "number of at least 1"),
        ("", "give a number of seeds"),
        ("-3", "give a number of seeds"),
        ("1,,2", "give a number of seeds"),
        ("1.5", "give a number of seeds"),
        ("٣", "give a number of seeds"),
    ],
)
def test_seeds_out_of_bounds_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_seeds(text)


def test_too_many_seeds_are_refused_from_python_as_well() -> None:
    for seeds in (10**9, 10**20, range(10**5)):
        with pytest.raises(SettingsError, match="at most 10,000"):
            parse_seeds(seeds)
