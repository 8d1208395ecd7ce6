# SPDX-License-Identifier: Apache-2.0
"""Tasks: what a network's outputs are compared with, by which loss, and by which metrics."""
