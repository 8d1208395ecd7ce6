# SPDX-License-Identifier: Apache-2.0
"""Simulation in virtual time: links, an event queue, and one event loop for both schedules."""
