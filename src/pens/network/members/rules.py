# SPDX-License-Identifier: Apache-2.0
"""How often a member gossips, what it tells, and how long it waits for others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MembershipRules:
    """Times are in seconds. What they bring and cost is in docs/decisions/0080-membership.md."""

    view: int = 256
    """Members that are kept track of: in a smaller federation all, in a larger one a random sample of this size."""
    gossip_s: float = 1.0
    """Seconds between two rounds of gossip."""
    fanout: int = 2
    """Members called in a round, in a small federation; in a larger one, one."""
    told: int = 3
    """Records of others in a message, …"""
    told_to_newcomers: int = 64
    """… and in an answer to a member that knows few others, for which each member may ask seldom."""
    large: int = 64
    """A federation of more members than this, to all of which no connections can be kept, is large."""
    partners: int = 16
    """In a large federation only so many are called, and they change slowly."""
    partner_s: float = 120.0
    """A partner is exchanged for another one this often."""
    prompt: float = 16
    """With more members than this, `suspect_s` and `drop_s` are longer in proportion."""
    suspect_s: float = 8.0
    drop_s: float = 30.0
    forget_s: float = 24 * 3600.0
    stale_s: float = 600.0
    """A record that was signed longer ago is no news when others tell it."""
    redraw_s: float = 4 * 3600.0
    """The sample is another one after this time, where there are more members than `view`."""
    call_lost_every: int = 4
    """Every this many rounds, a member without news, a dropped one or a bootstrap address is called; …"""
    call_lost_of_many_every: int = 12
    """… in a large federation, where each such call makes a new connection, every this many."""
    checks_per_s: float = 64.0
    """Signatures of one teller that are checked, on average …"""
    burst_checks: int = 256
    """… and in a burst."""
    certificates_per_s: float = 1.0
    """Certificates of members outside of the sample that are asked for, on average …"""
    burst_certificates: int = 64
    """… and in a burst."""
