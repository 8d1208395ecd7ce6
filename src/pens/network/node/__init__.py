# SPDX-License-Identifier: Apache-2.0
"""One real peer: it drives the protocol on asyncio, computes beside the event loop, and keeps its state on disk."""
