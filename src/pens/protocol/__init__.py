# SPDX-License-Identifier: Apache-2.0
"""How a peer behaves: what it does about what happens to it."""
