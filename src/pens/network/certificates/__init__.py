# SPDX-License-Identifier: Apache-2.0
"""Certificates of members: a federation's authority, what it issues, and the list of what it revoked.

    CERTS/                     made by `pens certs init` on the machine of the federation's operator, and kept there
        authority.pem          the authority's certificate; while it is replaced, the new one's and then the old one's
        authority.key          its key: anyone with the authority's key can admit members
        former/ID.key          the old authority's key, while it is replaced
        revoked.pem            an X.509 revocation list of each authority, for all members
        issued/NAME.SERIAL.pem every certificate that was ever issued, so that revoking a name revokes all of them
        peers/NAME/            a member's own four files, where `pens certs issue` made its key, too

    a member's folder          `peer.certificates`
        peer.pem, peer.key     its certificate and key
        authority.pem          the authorities that it trusts
        revoked.pem            their lists; newer ones come from other members, into its state folder
        next.key, NAME.csr     a request (`pens certs request`) that is not answered yet

Theory of operation
-------------------
A member's name is the common name of its certificate; a name in a message proves nothing. A server reads the name and
the serial number in its caller's certificate. A caller cannot read the server's certificate, because gRPC for Python
shows certificates to servers only. But a caller can demand, by TLS itself, that the server's certificate is valid for a
given DNS name. So each certificate contains three names, which no name server ever resolves:

    member.pens.internal                    all members of the federation
    NAME.peer.pens.internal                 all certificates of this member
    NAME.SERIAL.serial.pens.internal        this very certificate

A caller connects for the first name, asks for the name and the serial number of the server's certificate (which may be
a lie), looks the serial number up in the revocation list, and then talks only over a connection made for the third
name. The handshake of that connection fails unless the server holds the key of exactly that certificate, and so does
every later handshake when it has to be made again.

DNS names ignore case, so names of members are lower case. All keys are on the curve P-256, which excludes TLS 1.2 (see
`transport.grpc_core`). Key files have mode 0600 from the moment that they exist.
"""
