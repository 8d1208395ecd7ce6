# SPDX-License-Identifier: Apache-2.0
"""Who is who: a federation's authority, its members' certificates, and the list of those revoked.

    CERTS/                     made by `pens certs init`, kept by whoever runs the federation; never leaves that machine
        authority.pem          the authority's certificate
        authority.key          its key: who has it can admit anybody
        revoked.pem            an X.509 revocation list that the authority signed, for all members
        issued/NAME.SERIAL.pem every certificate there ever was, so that revoking a name revokes all of them
        peers/NAME/            a member's own four files, to be carried to its machine:
            peer.pem, peer.key, authority.pem, revoked.pem

Theory of operation
-------------------
A member's name is the common name of its certificate, and nothing that it says. A server sees its caller's certificate,
and asks `name` and `serial` of it. A caller, though, cannot see the server's certificate: gRPC for Python shows it to
servers only. What a caller can do is to demand, with TLS itself, that the certificate be good for a given DNS name. So
each certificate carries three names that never meet a name server:

    member.pens.internal                    all members: "somebody of this federation"
    NAME.peer.pens.internal                 this name, whichever of its certificates
    NAME.SERIAL.serial.pens.internal        this very certificate

A caller asks the first who it is, gets a name and a serial number that may be a lie, looks the serial number up among
the revoked, and talks only over a connection made for the third. The handshake then fails unless the other side holds
the key of exactly that certificate, when it connects first and each time it has to connect again.

DNS names ignore case, so names of members are lower case. Keys are on the curve P-256, and only those: that keeps TLS
1.2 out (see `transport.grpc_core`). Key files have mode 0600 from the moment that they exist.
"""
