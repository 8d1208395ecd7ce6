# SPDX-License-Identifier: Apache-2.0
"""The sections of a report, one per file."""
