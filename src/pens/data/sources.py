# SPDX-License-Identifier: Apache-2.0
"""Loads data sets: from a folder that holds them, or by downloading them once and checking them.

Folders are searched in this order: the given one (`--data-dir`), `PENS_DATA`, the user's cache, the system's data set
folder (Debian's dataset-fashion-mnist package). A folder may hold the files themselves or the data set's own
subfolder. A data set that no folder holds is downloaded into the user's cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pooch

from pens.data.formats import (
    SUFFIXES,
    check_published,
    checked_labels,
    parse_cifar_batch,
    parse_idx,
    read_unpacked,
)
from pens.data.samples import Dataset, Samples, concatenate
from pens.errors import DataCorrupt, DataNotFound, SettingsError
from pens.parts import DATASETS

SYSTEM_FOLDER = Path("/usr/share/datasets")


@dataclass(frozen=True)
class Published:
    """The published length and SHA-256 of one file of a data set, unpacked."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """An archive or packed file on the web."""

    url: str
    known_hash: str


@dataclass(frozen=True)
class FileSet:
    """A data set that is kept in files: their names, where to download them, how to parse them."""

    subfolder: str
    files: Mapping[str, Published]
    downloads: tuple[Download, ...]
    parse: Callable[[Mapping[str, tuple[Path, bytes]]], tuple[Samples, Samples]]
    homepage: str
    debian_package: str | None = None


@dataclass(frozen=True)
class Whereabouts:
    """Where a data set is, for `pens data`. `folder` is None where no folder holds it."""

    name: str
    folder: Path | None
    detail: str


def load_dataset(name: str, data_dir: Path | None = None) -> Dataset:
    """Load a data set by name, from the first folder that holds it; download it if none does."""
    _check_data_dir(data_dir)
    if name == "digits":
        return _load_digits()
    files = _file_set(name)
    folder = find_folder(name, data_dir) or _download(name, files, data_dir)
    contents = {stem: _read_checked(_variant(folder, stem), files.files[stem]) for stem in files.files}
    train, test = files.parse(contents)
    return Dataset(name, _scaled(train), _scaled(test))


def find_folder(name: str, data_dir: Path | None = None) -> Path | None:
    """The first searched folder that holds all files of a data set, or None."""
    files = _file_set(name)
    for folder in searched_folders(name, data_dir):
        if all(_exists(folder, stem) for stem in files.files):
            return folder
    return None


def searched_folders(name: str, data_dir: Path | None = None) -> list[Path]:
    """All folders in which a data set is searched, in order."""
    subfolder = _file_set(name).subfolder
    roots = [data_dir] if data_dir else []
    if os.environ.get("PENS_DATA"):
        roots.append(Path(os.environ["PENS_DATA"]))
    roots += [cache_folder(), SYSTEM_FOLDER]
    return [folder for root in roots for folder in (root / subfolder, root)]


def cache_folder() -> Path:
    """The folder into which data sets are downloaded."""
    return Path(pooch.os_cache("pens"))


def survey(data_dir: Path | None = None) -> list[Whereabouts]:
    """Where each built-in data set is, for `pens data`."""
    _check_data_dir(data_dir)
    places = [Whereabouts("digits", Path(), "embedded (scikit-learn): 1,797 images of 8 × 8")]
    for name, files in _FILE_SETS.items():
        folder = find_folder(name, data_dir)
        detail = f"{len(files.files)} files" if folder else _incomplete(name, files, data_dir)
        places.append(Whereabouts(name, folder, detail))
    return places


def _check_data_dir(data_dir: Path | None) -> None:
    """Refuse a data folder that does not exist: a typing error must not lead to data from another folder."""
    if data_dir and not data_dir.is_dir():
        raise SettingsError(f"--data-dir {data_dir}: no such folder. Name an existing one, or leave the option out")


def _incomplete(name: str, files: FileSet, data_dir: Path | None) -> str:
    for folder in searched_folders(name, data_dir):
        missing = [stem for stem in files.files if not _exists(folder, stem)]
        if len(missing) < len(files.files):
            return f"incomplete in {folder}: {', '.join(missing)} missing"
    return "not on this machine; downloaded when it is first used"


def _file_set(name: str) -> FileSet:
    if name not in _FILE_SETS:
        raise SettingsError(f"unknown data set {name!r}: choose from {', '.join(DATASETS)}")
    return _FILE_SETS[name]


def _exists(folder: Path, stem: str) -> bool:
    return any((folder / (stem + suffix)).is_file() for suffix in SUFFIXES)


def _variant(folder: Path, stem: str) -> Path:
    return next(p for suffix in SUFFIXES if (p := folder / (stem + suffix)).is_file())


def _read_checked(path: Path, published: Published) -> tuple[Path, bytes]:
    content = read_unpacked(path)
    check_published(path, content, published.size, published.sha256)
    return path, content


def _download(name: str, files: FileSet, data_dir: Path | None) -> Path:
    """Download a data set into the user's cache. Each file is checked by its hash before it gets its name."""
    folder = cache_folder() / files.subfolder
    try:
        for download in files.downloads:
            unpack = pooch.Untar(members=None, extract_dir=".") if download.url.endswith(".tar.gz") else None
            pooch.retrieve(
                download.url,
                known_hash=download.known_hash,
                fname=download.url.rsplit("/", 1)[1],
                path=cache_folder() if unpack else folder,
                processor=unpack,
                downloader=pooch.HTTPDownloader(timeout=20),
            )
    except ValueError as error:  # pooch: the hash differs
        raise DataCorrupt(f"{download.url}: the download is damaged: {error}. Run the command again") from None
    except OSError as error:  # no network, no such host, no space; requests' errors are OSErrors
        raise DataNotFound(_not_found(name, files, data_dir, error)) from None
    return folder


def _not_found(name: str, files: FileSet, data_dir: Path | None, error: OSError) -> str:
    folders = "\n".join(f"  {folder}" for folder in searched_folders(name, data_dir))
    debian = f"\n     or install the Debian package {files.debian_package}" if files.debian_package else ""
    return (
        f"{name}: not found, and the download failed ({type(error).__name__}: {_first_line(error)}).\n"
        f"Searched for {', '.join(files.files)} (plain, .gz or .xz) in\n{folders}\n"
        "Two ways to get it:\n"
        "  1. connect this machine to the network and run again: it is downloaded once and kept;\n"
        f"  2. fetch it elsewhere from {files.homepage}, and name the folder with --data-dir or PENS_DATA{debian}."
    )


def _first_line(error: OSError) -> str:
    return (str(error).splitlines() or [""])[0][:160]


def _scaled(samples: Samples) -> Samples:
    """Scale bytes to float32 in [−1, 1], as the authors' code does: (x / 255 − 0.5) / 0.5."""
    return Samples((samples.x.astype(np.float32) / 255 - 0.5) / 0.5, samples.y)


def _load_digits() -> Dataset:
    """Load scikit-learn's embedded digits: 8 × 8, values 0 to 16. Every fifth sample of each class is for testing."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = ((digits.images[:, None] / 16 - 0.5) / 0.5).astype(np.float32)
    y = digits.target.astype(np.int64)
    held_out = np.zeros(len(y), bool)
    for label in range(10):
        held_out[np.flatnonzero(y == label)[4::5]] = True
    return Dataset("digits", Samples(x[~held_out], y[~held_out]), Samples(x[held_out], y[held_out]))


def _parse_fashion_mnist(contents: Mapping[str, tuple[Path, bytes]]) -> tuple[Samples, Samples]:
    def part(prefix: str) -> Samples:
        images = parse_idx(*contents[f"{prefix}-images-idx3-ubyte"], dimensions=3)
        path, content = contents[f"{prefix}-labels-idx1-ubyte"]
        labels = checked_labels(path, parse_idx(path, content, dimensions=1))
        if len(images) != len(labels):
            raise DataCorrupt(
                f"{path}: {len(labels)} labels for {len(images)} images: the two files do not belong together: "
                "fetch both again"
            )
        return Samples(images[:, None], labels)

    return part("train"), part("t10k")


def _parse_cifar10(contents: Mapping[str, tuple[Path, bytes]]) -> tuple[Samples, Samples]:
    batches = {stem: parse_cifar_batch(path, content) for stem, (path, content) in contents.items()}
    test = batches.pop("test_batch.bin")
    return concatenate(list(batches.values())), test


def _cifar_files() -> dict[str, Published]:
    sha256 = {
        "data_batch_1.bin": "9446b053ffeaa07abb5370c934a5a598d4eb98fb8f46fd7d63eb7e85da9a351c",
        "data_batch_2.bin": "05f1dad6b4bd44f90417b5ef900abd8e4f4219569e0e2418c41fafaf574bdb77",
        "data_batch_3.bin": "ff81815413d593775b2ea9a304cc6c7f96ff3f1fa0d971d45ab3ff29ac226194",
        "data_batch_4.bin": "9b3b755f30d9303c4bf1d30a62865afb4e8d5b8621f523e79060df99364ea25c",
        "data_batch_5.bin": "cc7267af63b35ef2de6aff6e5b6f93290820ff841bcfb6044a98364bd0d20c44",
        "test_batch.bin": "4f6d7baf6c5b2244ae28ec1d2688fc2b34b706000b925a6f1d84e977a89e8cd0",
    }
    return {stem: Published(30_730_000, digest) for stem, digest in sha256.items()}


_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

_FILE_SETS: dict[str, FileSet] = {
    "fashion-mnist": FileSet(
        subfolder="fashion-mnist",
        files={
            "train-images-idx3-ubyte": Published(
                47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
            ),
            "train-labels-idx1-ubyte": Published(
                60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            "t10k-images-idx3-ubyte": Published(
                7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
            ),
            "t10k-labels-idx1-ubyte": Published(
                10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        },
        downloads=(
            Download(f"{_FASHION_URL}/train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            Download(f"{_FASHION_URL}/train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
            Download(f"{_FASHION_URL}/t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
            Download(f"{_FASHION_URL}/t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        parse=_parse_fashion_mnist,
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        debian_package="dataset-fashion-mnist",
    ),
    "cifar-10": FileSet(
        subfolder="cifar-10-batches-bin",
        files=_cifar_files(),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
            ),
        ),
        parse=_parse_cifar10,
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
}
