# SPDX-License-Identifier: Apache-2.0
"""Turns run directories into tables, pictures and one HTML page."""
