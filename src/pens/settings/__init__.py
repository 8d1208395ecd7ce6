# SPDX-License-Identifier: Apache-2.0
"""Typed settings, and every one of them in words."""
