# SPDX-License-Identifier: Apache-2.0
"""Methods × seeds of one setting: the interface, the wiring, the measuring."""
