# SPDX-License-Identifier: Apache-2.0
"""Data sets from files as users have them: packed or not, in several folders, damaged, missing, downloaded."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pens.data import sources
from pens.data.formats import check_published
from pens.data.sources import Download, find_folder, load_dataset, survey
from pens.errors import DataCorrupt, DataNotFound, SettingsError


def idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def fashion_files(count: int = 12) -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    files = {}
    for prefix, number in (("train", count), ("t10k", count // 2)):
        files[f"{prefix}-images-idx3-ubyte"] = idx(generator.integers(0, 256, (number, 28, 28), dtype=np.uint8))
        files[f"{prefix}-labels-idx1-ubyte"] = idx(generator.integers(0, 10, number, dtype=np.uint8))
    return files


def cifar_files(count: int = 4) -> dict[str, bytes]:
    generator = np.random.default_rng(1)
    records = generator.integers(0, 256, (6, count, 3073), dtype=np.uint8)
    records[:, :, 0] %= 10
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {name: part.tobytes() for name, part in zip(names, records, strict=True)}


def write(folder: Path, files: dict[str, bytes], suffix: str = "") -> Path:
    packs: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
    pack = packs[suffix]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + suffix)).write_bytes(pack(content))
    return folder


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder of this machine, and no network."""
    monkeypatch.delenv("PENS_DATA", raising=False)
    monkeypatch.setattr(sources, "SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    for name, files in sources._FILE_SETS.items():
        nowhere = tuple(replace(d, url="http://127.0.0.1:9/" + d.url.rsplit("/", 1)[1]) for d in files.downloads)
        monkeypatch.setitem(sources._FILE_SETS, name, replace(files, downloads=nowhere))


def test_digits_are_embedded() -> None:
    digits = load_dataset("digits")
    assert digits.train.x.shape == (1442, 1, 8, 8)
    assert digits.test.x.shape == (355, 1, 8, 8)
    assert digits.train.x.min() == -1
    assert digits.train.x.max() == 1
    assert np.bincount(digits.test.y, minlength=10).min() >= 34


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_fashion_mnist_is_read_plain_and_packed(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "data" / "fashion-mnist", fashion_files(), suffix)
    dataset = load_dataset("fashion-mnist", tmp_path / "data")
    assert dataset.train.x.shape == (12, 1, 28, 28)
    assert dataset.train.x.dtype == np.float32
    raw = np.frombuffer(fashion_files()["train-images-idx3-ubyte"][16:], np.uint8).reshape(12, 1, 28, 28)
    np.testing.assert_allclose(dataset.train.x, (raw / 255 - 0.5) / 0.5, atol=1e-6)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_cifar_10_is_read_plain_and_packed(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, cifar_files(), suffix)
    dataset = load_dataset("cifar-10", tmp_path)
    assert dataset.train.x.shape == (20, 3, 32, 32)
    assert dataset.test.x.shape == (4, 3, 32, 32)
    first = cifar_files()["data_batch_1.bin"]
    assert dataset.train.y[0] == first[0]
    np.testing.assert_allclose(dataset.train.x[0, 0, 0, :3], np.array(list(first[1:4])) / 127.5 - 1, atol=1e-6)


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> Path | None:
        return find_folder("fashion-mnist", tmp_path / "given")

    (tmp_path / "given").mkdir()
    assert found() is None
    system = write(tmp_path / "system" / "fashion-mnist", fashion_files(), ".gz")
    assert found() == system
    cached = write(tmp_path / "cache" / "fashion-mnist", fashion_files())
    assert found() == cached
    variable = write(tmp_path / "variable", fashion_files())
    monkeypatch.setenv("PENS_DATA", str(variable))
    assert found() == variable
    given = write(tmp_path / "given" / "fashion-mnist", fashion_files())
    assert found() == given


def test_nothing_found_and_no_network_names_the_folders_and_two_ways(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound) as caught:
        load_dataset("fashion-mnist", tmp_path)
    message = str(caught.value)
    for folder in (tmp_path / "fashion-mnist", tmp_path / "cache" / "fashion-mnist", tmp_path / "system"):
        assert str(folder) in message
    assert "  1. connect" in message
    assert "  2. fetch it elsewhere" in message
    assert "--data-dir" in message
    assert "dataset-fashion-mnist" in message


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such folder"):
        load_dataset("digits", tmp_path / "missing")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10"])
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str, name: str) -> None:
    files = fashion_files() if name == "fashion-mnist" else cifar_files()
    write(tmp_path, files, suffix)
    for stem in files:
        path = tmp_path / (stem + suffix)
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        with pytest.raises(DataCorrupt, match=path.name):
            load_dataset(name, tmp_path)
        path.write_bytes(b"")
        with pytest.raises(DataCorrupt, match=path.name):
            load_dataset(name, tmp_path)
        path.write_bytes(whole)
    load_dataset(name, tmp_path)


def test_damage_inside_is_found(tmp_path: Path) -> None:
    files = fashion_files()
    files["train-labels-idx1-ubyte"] = files["train-labels-idx1-ubyte"][:-1] + b"\x63"
    write(tmp_path, files)
    with pytest.raises(DataCorrupt, match=r"train-labels.*label 99"):
        load_dataset("fashion-mnist", tmp_path)
    files = fashion_files()
    files["t10k-labels-idx1-ubyte"] = idx(np.zeros(3, np.uint8))
    write(tmp_path, files)
    with pytest.raises(DataCorrupt, match="do not belong together"):
        load_dataset("fashion-mnist", tmp_path)


def test_published_length_with_other_content_is_damage(tmp_path: Path) -> None:
    content = b"something"
    check_published(tmp_path / "a", content, len(content), hashlib.sha256(content).hexdigest())
    check_published(tmp_path / "a", content, len(content) + 1, "a set of another size is somebody's own")
    with pytest.raises(DataCorrupt, match="SHA-256"):
        check_published(tmp_path / "a", content, len(content), "0" * 64)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on loopback."""
    root = tmp_path / "www"
    root.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", root
        http.shutdown()


def offer(monkeypatch: pytest.MonkeyPatch, name: str, url: str, files: dict[str, bytes]) -> None:
    downloads = tuple(
        Download(f"{url}/{path}", "sha256:" + hashlib.sha256(content).hexdigest()) for path, content in files.items()
    )
    monkeypatch.setitem(sources._FILE_SETS, name, replace(sources._FILE_SETS[name], downloads=downloads))


def test_missing_files_are_downloaded_once_and_kept(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = server
    packed = {f"{name}.gz": gzip.compress(content) for name, content in fashion_files().items()}
    write(root, packed)
    offer(monkeypatch, "fashion-mnist", url, packed)
    assert len(load_dataset("fashion-mnist").train) == 12
    for path in root.iterdir():
        path.unlink()
    assert len(load_dataset("fashion-mnist").train) == 12
    assert find_folder("fashion-mnist") == tmp_path / "cache" / "fashion-mnist"


def test_an_archive_is_downloaded_and_unpacked(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, root = server
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in cifar_files().items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    packed = {"cifar-10-binary.tar.gz": archive.getvalue()}
    write(root, packed)
    offer(monkeypatch, "cifar-10", url, packed)
    assert len(load_dataset("cifar-10").train) == 20


def test_a_damaged_download_is_refused(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, root = server
    packed = {f"{name}.gz": gzip.compress(content) for name, content in fashion_files().items()}
    offer(monkeypatch, "fashion-mnist", url, packed)
    write(root, {name: content[:-1] for name, content in packed.items()})
    with pytest.raises(DataCorrupt, match="download is damaged"):
        load_dataset("fashion-mnist")
    assert find_folder("fashion-mnist") is None


def test_survey_tells_what_is_where(tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist", fashion_files())
    files = cifar_files()
    del files["data_batch_3.bin"]
    write(tmp_path / "cifar-10-batches-bin", files)
    found = {f.name: f for f in survey(tmp_path)}
    assert found["fashion-mnist"].folder == tmp_path / "fashion-mnist"
    assert found["cifar-10"].folder is None
    assert "data_batch_3.bin missing" in found["cifar-10"].detail


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(SettingsError, match="choose from digits, fashion-mnist, cifar-10"):
        load_dataset("mnist")
