# SPDX-License-Identifier: Apache-2.0
"""Typed settings, and their explanations."""
