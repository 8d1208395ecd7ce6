# SPDX-License-Identifier: Apache-2.0
"""A member's own files are refused where they do not belong together or have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from pens.errors import CertificateError
from pens.network.certificates.credentials import MemberFiles, load_credentials
from tests.network.federations import issue_expired, make_federation


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda files, others: files.revoked.write_bytes(others.revoked.read_bytes()), "did not sign"),
        (lambda files, others: files.revoked.unlink(), "no revocation list"),
        (lambda files, others: files.authority.write_bytes(others.authority.read_bytes()), "another authority"),
        (lambda files, others: files.certificate.write_bytes(others.certificate.read_bytes()), "another authority"),
        (lambda files, others: files.certificate.write_bytes(files.authority.read_bytes()), "not"),
        (lambda files, others: files.key.write_bytes(others.key.read_bytes()), "is not the key of"),
        (lambda files, others: files.key.write_bytes(b"?"), "not a key"),
        (lambda files, others: files.certificate.write_bytes(b"?"), "not a certificate"),
        (lambda files, others: files.key.chmod(0o640), "chmod 600"),
        (
            lambda files, others: files.key.unlink(),
            "no such file. A member needs the four files",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, break_it: object, message: str) -> None:
    files = MemberFiles(make_federation(tmp_path / "ours", "alice").folder / "peers" / "alice")
    others = MemberFiles(make_federation(tmp_path / "theirs", "alice").folder / "peers" / "alice")
    break_it(files, others)  # type: ignore[operator]
    with pytest.raises(CertificateError, match=message):
        load_credentials(files.folder)


def test_a_certificate_that_has_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="ended"):
        load_credentials(issue_expired(make_federation(tmp_path), "alice"))
