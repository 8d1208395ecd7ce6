# SPDX-License-Identifier: Apache-2.0
"""Parts: found by name among ours, installed packages' and files; everything else is refused with a sentence."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from pens.errors import SettingsError
from pens.parts import Registry, absolute, load_function, load_object, located_parts


class Shape:
    """What parts are in these tests."""

    name = "shape"


class Square(Shape):
    name = "square"


class Circle(Shape):
    name = "circle"


class Unmade(Shape):
    def __init__(self, size: int) -> None:
        raise AssertionError


HERE = "tests.test_parts"
OWN = "from tests.test_parts import Shape\n\n\nclass Mine(Shape):\n    name = {name!r}\n\n\nmade = Mine()\nnumber = 3\n"


def shapes() -> Registry[Shape]:
    return Registry("shape", "tests.shapes", f"{HERE}:Shape", {"square": f"{HERE}:Square"})


def own_file(folder: Path, name: object = "own-shape") -> Path:
    path = folder / "own.py"
    path.write_text(OWN.format(name=name))
    return path


def offer(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    found = EntryPoints(EntryPoint(name, value, "tests.shapes") for name, value in points)
    monkeypatch.setattr("pens.parts.entry_points", lambda group: found.select(group=group))


def test_ours_by_name_and_always_the_same() -> None:
    found = shapes()
    assert isinstance(found.find("square"), Square)
    assert found.find("square") is found.find("square")
    assert found.names() == ("square",)


def test_an_installed_package_offers_more(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("circle", f"{HERE}:Circle"))
    found = shapes()
    assert found.names() == ("square", "circle")
    assert isinstance(found.find("circle"), Circle)


def test_one_name_means_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("square", "other.package:Square"))
    with pytest.raises(SettingsError, match=f"'square' is offered by {HERE}:Square and other.package:Square"):
        shapes().find("square")


@pytest.mark.parametrize("what", ["Mine", "made"])
def test_a_file_is_found_from_any_folder_and_then_by_its_parts_name(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = shapes()
    mine = found.find(f"own.py:{what}")
    assert mine.name == "own-shape"
    assert found.find(f"own.py:{what}", tmp_path.parent / tmp_path.name) is mine
    assert found.names() == ("square", "own-shape")
    assert found.find("own-shape") is mine
    assert found.reference("own-shape") == f"{tmp_path / 'own.py'}:{what}" == absolute(f"own.py:{what}")
    assert found.reference("square") is None


def test_a_module_is_found_by_reference() -> None:
    assert isinstance(shapes().find(f"{HERE}:Circle"), Circle)
    assert absolute(f"{HERE}:Circle") == f"{HERE}:Circle"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "sqare",
            "unknown shape 'sqare', did you mean 'square'. Choose from square, or name your own as file.py:name",
        ),
        ("nowhere.py:Mine", "there is no file .*nowhere.py"),
        ("no.module:Mine", "ModuleNotFoundError: No module named 'no'"),
        ("own.py:Mein", "has no 'Mein', did you mean 'Mine'"),
        ("own.py", r"shape = 'own\.py': a file may have several parts: add the class, own\.py:Name"),
        ("own.py:number", "is an int: it has to be a pens.Shape"),
        (f"{HERE}:Square", "is called 'square', and so is one of pens: give yours another name"),
        (f"{HERE}:Unmade", "cannot be made: TypeError"),
        (":Mine", "expected module:name or file.py:name"),
        ("broken.py:Mine", r"it fails: ZeroDivisionError: division by zero \(/.*broken\.py, line 1\)"),
    ],
)
def test_what_is_no_part_is_refused(name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_file(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=reason):
        shapes().find(name)


def test_a_file_that_is_named_as_a_module_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is not on Python's path where the command is installed."""
    own_file(tmp_path).rename(tmp_path / "unheard_of.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [place for place in sys.path if place])
    with pytest.raises(SettingsError, match=r"unheard_of\.py is a file here: write unheard_of\.py:Mine"):
        shapes().find("unheard_of:Mine")


def test_who_has_a_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("round", f"{HERE}:Circle"))
    with pytest.raises(SettingsError, match=f"is called 'round', and so is that of {HERE}:Circle: give yours another"):
        shapes().find(f"{own_file(tmp_path, 'round')}:Mine")
    with pytest.raises(SettingsError, match="has no name: give its class one"):
        shapes().find(f"{own_file(tmp_path / '..', '')}:Mine")


@pytest.mark.parametrize("name", [None, 3, "", "My shape", "a/b", "../x", "-x"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: object, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a name is made of small letters, digits"):
        shapes().find(f"{own_file(tmp_path, name)}:Mine")


def test_objects_and_classes_are_added_and_replaced() -> None:
    found = shapes()
    mine = found.add(Circle)
    assert isinstance(mine, Circle)
    assert found.add(Circle) is found.add(mine) is found.find("circle") is mine
    assert found.names() == ("square", "circle")
    assert found.reference("circle") == f"{Path(__file__).resolve()}:Circle"
    other = Circle()
    assert found.add(other) is found.find("circle") is other
    assert found.reference("circle") is None  # no other process has that object
    assert found.add(Square) is found.find("square")
    with pytest.raises(SettingsError, match="shape Square is called 'square', and so is one of pens: rename it"):
        found.add(Square())


class Untitled(Shape):
    name = "untitled"
    section = Shape


def test_a_part_that_cannot_be_had_is_left_out_of_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's broken package concerns nobody who does not ask for it."""
    offer(monkeypatch, ("circle", f"{HERE}:Circle"), ("gone", "no.module:Gone"), ("round", f"{HERE}:Circle"))
    found = shapes()
    assert found.names() == ("square", "circle", "gone", "round")
    assert [shape.name for shape in found.every()] == ["square", "circle"]
    assert found.built_in == ("square",)
    with pytest.raises(SettingsError, match=r"'round' is offered by .*:Circle, which calls it 'circle'"):
        found.find("round")
    with pytest.raises(SettingsError, match=r"its section is .*: give a class that is derived from pens"):
        found.find(f"{HERE}:Untitled")


def test_a_file_with_typed_data_is_loaded_once(tmp_path: Path) -> None:
    """Dataclasses with annotations as text look for their module among those that are imported."""
    path = tmp_path / "typed.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n\n"
        "@dataclass\nclass One:\n    kind: ClassVar[str] = 'a'\n    size: int = 1\n"
    )
    one = load_object(f"{path}:One", "part")
    assert one().size == 1
    assert load_object("typed.py:One", "part", tmp_path) is one


def test_a_file_may_import_those_beside_it(tmp_path: Path) -> None:
    """As a script may. Such a file that is named as well is loaded once: its classes would be two otherwise."""
    (tmp_path / "shared_by_two.py").write_text("class One: pass\n")
    (tmp_path / "of_two.py").write_text("import shared_by_two\nOne = shared_by_two.One\n")
    one = load_object("of_two.py:One", "part", tmp_path)
    assert load_object("shared_by_two.py:One", "part", tmp_path) is one


def test_a_module_beside_the_settings_is_found(tmp_path: Path) -> None:
    (tmp_path / "a_module_of_my_own.py").write_text("def load():\n    return 7\n")
    assert load_function("a_module_of_my_own:load", "data.source", tmp_path)() == 7
    (tmp_path / "constants.py").write_text("load = 7\n")
    with pytest.raises(SettingsError, match="int is no class or function"):
        load_function("constants.py:load", "data.source", tmp_path)


def test_a_folder_of_data_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("scanners", "digits", "mlp"):
        (tmp_path / name).mkdir()
    assert located_parts("scanners", "mlp") == {"data.source": str(tmp_path / "scanners"), "model.net": "mlp"}
    assert located_parts("digits", None) == {"data.source": "digits"}
    assert located_parts("./digits", None) == {"data.source": str(tmp_path / "digits")}
