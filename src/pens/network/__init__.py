# SPDX-License-Identifier: Apache-2.0
"""Real peers: each organisation runs one, and they gossip models over mutual TLS.

Most of it needs what `pip install 'pens-fl[network]'` brings.
"""
