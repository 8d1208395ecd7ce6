# SPDX-License-Identifier: Apache-2.0
"""The other members of the federation: who is there, who can be reached, and whose network is another one."""
