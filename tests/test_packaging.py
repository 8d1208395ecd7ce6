# SPDX-License-Identifier: Apache-2.0
"""What users install: its name, its licence, its files, and how it behaves beside the other project called pens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pens
from pens.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IGNORED = {"runs", "build", "dist", "__pycache__"}
NO_CODE = [
    "pens/engine/compiled.c",
    "pens/network/transport/wire.proto",
    "pens/network/transport/wire_pb2.pyi",
    "pens/py.typed",
    "pens/report/page.html.j2",
    "pens/paper/tables.json",
]
PENS = "import sys; from pens_fl import main; sys.exit(main())"


def source_files() -> Iterator[Path]:
    """All but what tools leave behind: hidden folders, and those that git ignores."""
    for path in ROOT.rglob("*"):
        folders = path.relative_to(ROOT).parts[:-1]
        left_behind = any(part in IGNORED or part.startswith(".") or part.endswith(".egg-info") for part in folders)
        if path.is_file() and not left_behind:
            yield path


# --- name and licence -------------------------------------------------------------------------------------------------


def installs_of_pens(text: str) -> list[str]:
    """Commands that would install the other project."""
    commands = re.findall(r"\b(?:pipx?3?|uv)\s+(?:install|add|download|wheel)\b[^\n`;&|]*", text)
    words = [(command, word.strip("'\"(),.")) for command in commands for word in command.split()]
    return [command for command, word in words if re.fullmatch(r"pens(\[.*)?([=<>~!@].*)?", word)]


@pytest.mark.parametrize(
    "arguments", ["pens", "'pens[network]'", "--upgrade 'pens[network]'", "pens==0.1.0", '--quiet "pens[dev,network]"']
)
def test_commands_that_install_the_other_project_are_recognised(arguments: str) -> None:
    assert installs_of_pens(f"As root: `/opt/pens/bin/pip {'install'} {arguments}`, then go on.")
    assert not installs_of_pens("pip " + f"install {arguments}".replace("pens", "pens-fl"))


def test_nothing_tells_anybody_to_install_the_other_project() -> None:
    for path in source_files():
        if path.suffix not in {".png", ".svg"}:
            assert not installs_of_pens(path.read_text(encoding="utf-8")), path


def test_the_distribution_has_a_name_of_its_own_and_a_licence() -> None:
    assert PROJECT["name"] == "pens-fl"
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["scripts"] == {"pens": "pens_fl:main"}
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_every_source_file_names_its_licence() -> None:
    for path in source_files():
        if path.suffix in {".py", ".c", ".proto"} and path.stem != "wire_pb2" and path.stat().st_size:
            first = path.read_text(encoding="utf-8").splitlines()[0]
            assert first in {f"{mark} SPDX-License-Identifier: {PROJECT['license']}" for mark in ("#", "//")}, path


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {VERSION}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
    for words in ("Decentralized federated learning of deep neural networks on non-iid data", "arXiv:2107.08517"):
        assert words in citation
    assert re.findall(r"family-names: (.*)", citation) == ["Onoszko", "Karlsson", "Mogren", "Listo Zec"]


# --- what is in it ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this tree's wheel and source distribution, and in `again` the wheel that the latter makes."""
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    for path in source_files():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    build(tree, "build_wheel", folder)
    build(tree, "build_sdist", folder)
    with tarfile.open(folder / f"pens_fl-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    build(folder / f"pens_fl-{VERSION}", "build_wheel", folder / "again")
    return folder


def build(tree: Path, what: str, into: Path) -> None:
    """Call the build backend as pip does, in a process of its own."""
    into.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.{what}({str(into)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_all_that_runs_and_the_licence(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"pens_fl-{VERSION}-py3-none-any.whl"
    names = names_in(wheel)
    package = Path(pens.__file__).parent
    modules = {f"pens/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")}
    metadata = f"pens_fl-{VERSION}.dist-info"
    files = {name for name in names if not name.startswith(metadata)}
    assert files == {*modules, *NO_CODE, "pens_fl.py"}
    assert f"{metadata}/licenses/LICENSE" in names
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(f"{metadata}/METADATA").decode()
        scripts = archive.read(f"{metadata}/entry_points.txt").decode()
    assert "\nName: pens-fl\n" in about
    assert "\nLicense-Expression: Apache-2.0\n" in about
    assert "pens = pens_fl:main" in scripts


def test_the_source_distribution_makes_the_same_wheel_and_holds_tests_and_texts(built: Path) -> None:
    (wheel,), (again,) = built.glob("*.whl"), (built / "again").glob("*.whl")
    assert names_in(wheel) == names_in(again)
    unpacked = built / f"pens_fl-{VERSION}"
    here = {path.relative_to(ROOT).as_posix() for path in source_files()}
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert not {name for name in here - there if not name.startswith(".")}


def test_the_container_file_copies_what_the_build_needs_and_keeps_its_health_check() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = {
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    }
    assert {"constraints.txt", "pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= copied
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    assert any("podman build --format docker" in line for line in lines)  # the other format has no health checks


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The wheel as pip installs it, in a folder of its own, away from the checkout."""
    (wheel,) = built.glob("*.whl")
    site = built / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    done = subprocess.run([*pip, "--target", site, wheel], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return site


def run(site: Path, *arguments: str | Path, first: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python beside the checkout, with packages from `site`, or `first` from somewhere else."""
    path = ":".join(map(str, (first, site) if first else (site,)))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site.parent,
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(site.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_runs_away_from_the_checkout(installed: Path) -> None:
    out = installed.parent / "run"
    quick = ["--methods", "local,pens", "--set", "rounds=2", "step1_rounds=1", "step1_samplings=1"]
    done = run(installed, installed / "bin" / "pens", "run", "digits", *quick, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    page = run(installed, installed / "bin" / "pens", "report", out, "--out", installed.parent / "report.html")
    assert page.returncode == 0, page.stderr
    where = run(installed, "-c", "import pens; print(pens.__file__)")
    assert where.stdout.startswith(str(installed))


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment_and_runs_the_demo(built: Path, tmp_path: Path) -> None:
    """Needs an index of packages, and minutes."""
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    install = f"{programs}/pip install --quiet --constraint {ROOT}/constraints.txt {wheel}[network]"
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(install.split(), env=outside, check=True)
    command = f"{programs}/pens run digits --methods local,random,pens,oracle --out run"
    done = subprocess.run(command.split(), cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for method in ("local", "random", "pens", "oracle"):
        assert re.search(rf"│ {method} +│ +\d+\.\d", done.stdout)


# --- beside the other project -----------------------------------------------------------------------------------------


def place_other(site: Path, *, over: bool) -> None:
    """The other project's distribution, as pip unpacks it: with its files over ours, or with ours over its."""
    (site / "pens").mkdir(parents=True, exist_ok=True)
    if over:
        (site / "pens" / "__init__.py").write_text("from .ens import *\n__version__ = '2024.9.19'\n")
    (site / "pens" / "ens.py").write_text("")
    metadata = site / "pens-2024.9.19.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pens\nVersion: 2024.9.19\n")
    (metadata / "RECORD").write_text("pens/__init__.py,,\npens/ens.py,,\npens-2024.9.19.dist-info/RECORD,,\n")


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    shutil.copytree(installed, tmp_path / "site")
    return tmp_path / "site"


def test_alone_nothing_is_said(site: Path) -> None:
    done = run(site, "-W", "error", "-c", PENS, "--help")
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_the_other_project_installed_over_ours_is_named_with_a_remedy(site: Path) -> None:
    place_other(site, over=True)
    for command in (["-c", PENS, "--help"], ["-m", "pens", "--help"], [site / "bin" / "pens", "presets"]):
        done = run(site, *command)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"The package pens in {site / 'pens'} belongs to another project" in done.stderr
        assert "pip uninstall pens pens-fl" in done.stderr


def test_the_other_project_found_before_ours_is_named_with_a_remedy(site: Path, tmp_path: Path) -> None:
    place_other(tmp_path / "elsewhere", over=True)
    done = run(site, "-c", PENS, "--help", first=tmp_path / "elsewhere")
    assert done.returncode == 2
    assert f"The package pens in {tmp_path / 'elsewhere' / 'pens'} belongs to another project" in done.stderr


def test_what_an_uninstall_of_the_other_project_leaves_is_named_with_a_remedy(site: Path) -> None:
    place_other(site, over=True)
    shutil.rmtree(site / "pens-2024.9.19.dist-info")
    (site / "pens" / "__init__.py").unlink()
    done = run(site, "-S", "-c", PENS, "--help")  # without site-packages, where a checkout may be installed
    assert done.returncode == 2
    assert "has lost its __init__.py" in done.stderr
    assert "install pens-fl again" in done.stderr
    shutil.rmtree(site / "pens")
    done = run(site, "-S", "-c", PENS, "--help")
    assert done.returncode == 2
    assert "is missing" in done.stderr


def test_ours_installed_over_the_other_project_runs_and_warns(site: Path) -> None:
    place_other(site, over=False)
    done = run(site, "-c", "import pens; print(pens.__version__)")
    assert done.stdout.strip() == VERSION
    assert "The distribution pens-2024.9.19 and pens-fl have installed their files into one folder" in done.stderr
    assert "pip uninstall pens pens-fl" in done.stderr


def test_the_other_project_behind_ours_on_the_path_does_no_harm(site: Path, tmp_path: Path) -> None:
    place_other(tmp_path / "elsewhere", over=True)
    done = run(tmp_path / "elsewhere", "-W", "error", "-c", "import pens; print(pens.__version__)", first=site)
    assert done.stdout.strip() == VERSION
    assert not done.stderr
