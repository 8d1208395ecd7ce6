# SPDX-License-Identifier: Apache-2.0
"""Tunes the methods of a comparison, each with the same number of trials, on validation data alone."""
