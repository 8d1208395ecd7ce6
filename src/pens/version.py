# SPDX-License-Identifier: Apache-2.0
"""The version of this package: a constant that packaging and records read without importing anything else."""

VERSION = "0.1.0"
