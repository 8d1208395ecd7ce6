# SPDX-License-Identifier: Apache-2.0
"""Plans of many runs, for `pens reproduce`, `pens compare` and `pens tune`: found by their settings, run as far as a
time budget allows, and continued later."""
