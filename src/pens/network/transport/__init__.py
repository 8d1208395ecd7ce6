# SPDX-License-Identifier: Apache-2.0
"""How models and membership tables travel: the seam, the bytes, gRPC over mutual TLS, and a network in memory."""
