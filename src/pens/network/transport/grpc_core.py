# SPDX-License-Identifier: Apache-2.0
"""The environment that gRPC's C core needs before it starts, and the lines that it writes about failed handshakes.

TLS 1.3 only. gRPC for Python cannot set a lowest version of TLS, but the C core reads a list of cipher suites for TLS
1.2 from the environment; those of TLS 1.3 are not affected. The list here asks for RSA certificates, of which a
federation has none (`certificates`): a caller that offers TLS 1.2 finds no suite in common. gRPC reads the environment
once, when it is imported first, so `grpc_transport` sets it on import, and raises an error if it is too late. The
server checks the version of each caller again.

Handshakes. A caller without a certificate, or with an expired one or another authority's, is turned away inside the C
core, and Python is not told. The C core writes one line to the standard error stream for each, at verbosity `info`. A
program that wants these lines in its log sets `native_log_settings()` before the import, reads its own standard error
stream through a pipe, and calls `refusal_in` with each line.
"""

from __future__ import annotations

import os
import re
import sys

from pens.errors import TransportError

_TLS_1_2_SUITES_WITHOUT_USE = "ECDHE-RSA-AES256-GCM-SHA384"
_HANDSHAKE = re.compile(r"ssl_transport_security\.cc:\d+\] Handshake failed with error \w+: (?P<why>.+)")
_REASON = re.compile(r"OPENSSL_internal:(?P<code>\w+)(: (?P<detail>.*))?")
_WORDS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "NO_SHARED_CIPHER": "not TLS 1.3",
    "UNSUPPORTED_PROTOCOL": "not TLS 1.3",
    "WRONG_VERSION_NUMBER": "not TLS",
    "HTTP_REQUEST": "not TLS",
    "CERTIFICATE_VERIFY_FAILED": "certificate not trusted",
}


def native_tls_settings() -> dict[str, str]:
    """Environment variables that must be set before gRPC is imported, in every program that uses it."""
    return {"GRPC_SSL_CIPHER_SUITES": _TLS_1_2_SUITES_WITHOUT_USE}


def native_log_settings() -> dict[str, str]:
    """Environment variables with which the C core writes a line about each handshake that fails."""
    return {"GRPC_VERBOSITY": "info"}


def set_tls_1_3_only() -> None:
    """Set the environment for TLS 1.3; call it before gRPC is imported."""
    settings = native_tls_settings()
    if "grpc" in sys.modules and any(os.environ.get(name) != value for name, value in settings.items()):
        words = " ".join(f"{name}={value}" for name, value in settings.items())
        raise TransportError(
            "gRPC was imported before pens could forbid TLS 1.2: import pens.network.transport.grpc_transport first, "
            f"or start the process with {words}"
        )
    os.environ.update(settings)


def refusal_in(line: str) -> str | None:
    """Why the C core turned a caller away, if this line of its log says so."""
    failed = _HANDSHAKE.search(line)
    if not failed:
        return None
    reason = _REASON.search(failed["why"])
    if not reason:
        return f"handshake failed: {failed['why'].strip()}"
    words = _WORDS.get(reason["code"], reason["code"].replace("_", " ").lower())
    if reason["code"] == "CERTIFICATE_VERIFY_FAILED" and reason["detail"]:
        return f"{words}: {reason['detail'].strip()}"
    return words
