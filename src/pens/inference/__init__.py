# SPDX-License-Identifier: Apache-2.0
"""Tested models in use: one peer's model, its outputs on new samples, and its files for other programs."""
