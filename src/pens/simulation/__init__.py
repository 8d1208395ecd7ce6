# SPDX-License-Identifier: Apache-2.0
"""Virtual time: links, who waits for whom, one event loop for both schedules."""
