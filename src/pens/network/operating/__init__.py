# SPDX-License-Identifier: Apache-2.0
"""A real peer as a process: its settings file, the command that runs it, its log and its metrics."""
