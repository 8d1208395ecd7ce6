# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates on disk: only the owner can read a key, and a file is replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pens.errors import CertificateError, DiskError, may_pass


def read_file(path: Path) -> bytes:
    """The content of a certificate, a key or a revocation list."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CertificateError(
            f"{path}: there is no such file. A member needs peer.pem, peer.key, authority.pem and revoked.pem in the "
            "folder that `peer.certificates` names: `pens certs request NAME`, and `pens certs install` with the "
            "authority's answer, put them there. `pens certs init` makes the authority's folder"
        ) from None
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None


def read_key(path: Path) -> bytes:
    """The content of a key file that nobody but its owner can read."""
    data = read_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise CertificateError(f"{path}: mode {mode:03o} lets others read the key: chmod 600 {path}")
    return data


def make_folder(folder: Path) -> None:
    """Make a folder that nobody but its owner can enter."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"{folder}: {error.strerror}") from None


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a file as a whole. Whatever the umask, its permissions never exceed `mode`, not even meanwhile."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        kind = DiskError if may_pass(error.errno) else CertificateError
        raise kind(f"{path}: cannot be written: {error.strerror}") from None


def parse_key(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in the content of the file at `path`."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path}: not a key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path}: not a key on the curve P-256: make keys with `pens certs`")
    return key


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as the content of a file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
