# SPDX-License-Identifier: Apache-2.0
"""Own data in folders and archives: images by peer and class, and NumPy archives.

folder/PEER/CLASS/image.png             parts are split off
folder/PEER/train/CLASS/image.png       parts are given: train, val and test
archive.npz                             arrays x and y, and peer where there are several peers
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pens.data.reading import Parts, Raw, Reading
from pens.data.samples import Array
from pens.errors import DataCorrupt, DataError, DataNotFound

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_PARTS = ("train", "val", "test")


def peers_of_folder(folder: Path, size: int | None) -> Iterator[tuple[str, Parts]]:
    """The peers of a folder of images. `size`: images are brought to so many pixels a side; None: as they are."""
    peers = [path for path in _folders(folder) if _has_images(path)]
    if not peers:
        raise DataError(
            f"{folder}: expected images in folders by peer and class, for instance {folder.name}/clinic-a/cat/1.png"
        )
    yield from ((path.name, parts_of_folder(path, size)) for path in peers)


def has_no_peers(folder: Path) -> bool:
    """Whether a folder's images are by class only, folder/CLASS/1.png, perhaps in the folders of parts."""
    inside = _folders(folder)
    if inside and {path.name for path in inside} <= {*_PARTS}:
        return True
    return any(file.suffix.lower() in IMAGES for path in inside for file in path.iterdir())


def parts_of_folder(folder: Path, size: int | None) -> Parts:
    """One peer's images, by class, or by part and class."""
    classes = _folders(folder)
    if classes and {path.name for path in classes} <= {*_PARTS}:
        return {path.name: _by_class(path, size) for path in sorted(classes, key=lambda path: _PARTS.index(path.name))}
    return {"train": _by_class(folder, size)}


def _by_class(folder: Path, size: int | None) -> Raw:
    paths = [path for of in _folders(folder) for path in sorted(of.rglob("*")) if path.suffix.lower() in IMAGES]
    if not paths:
        raise DataError(f"{folder}: holds no images in folders by class, for instance {folder.name}/cat/1.png")
    images = [_image(path, size) for path in paths]
    shapes = {image.shape: path for image, path in zip(reversed(images), reversed(paths), strict=True)}
    if len(shapes) > 1:
        (one, first), (other, second) = list(shapes.items())[:2]
        raise DataError(
            f"{first} has the shape {one}, but {second} has {other}: set image_size in section [data], and all are "
            "brought to one size"
        )
    labels = [path.relative_to(folder).parts[0] for path in paths]
    return Raw(np.stack(images), np.array(labels))


def _image(path: Path, size: int | None) -> Array:
    """An image as numbers from 0 to 1.  [channel, height, width]"""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "I", "I;16", "F", "LA")
            converted = image.convert("L" if grey else "RGB")
            if size:
                converted = converted.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(converted, np.float32) / 255
    except (OSError, UnidentifiedImageError, ValueError) as error:
        raise DataCorrupt(f"{path}: cannot be read as an image: {error}") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataNotFound(f"{folder}: there is no such folder")
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _has_images(folder: Path) -> bool:
    return any(path.suffix.lower() in IMAGES for path in folder.rglob("*"))


def read_archive(path: Path, reading: Reading) -> tuple[Raw, Array | None]:
    """The arrays x and y of a NumPy archive, and its array of peers, where it has one."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataNotFound(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError) as error:
        raise DataCorrupt(f"{path}: cannot be read as a NumPy archive: {error}") from None
    if missing := [name for name in ("x", "y") if name not in arrays]:
        raise DataError(f"{path}: has no array {missing[0]!r}: its arrays are {', '.join(arrays)}")
    return Raw(arrays["x"], arrays["y"]), arrays.get(reading.peer)
