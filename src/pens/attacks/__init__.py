# SPDX-License-Identifier: Apache-2.0
"""Attacks: what peers of a simulation do that do harm, one file for each."""
