# SPDX-License-Identifier: Apache-2.0
"""Real peers: each organisation runs one, and they gossip models over mutual TLS.

    certificates ─▶ transport ─▶ members ─▶ node ─▶ operating ─▶ federation

Each package imports only from those before it. Most of them need what `pip install 'pens-fl[network]'` brings.
"""
