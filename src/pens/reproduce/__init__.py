# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments behind the paper's tables and figures again, and compares the results with the paper's."""
