# SPDX-License-Identifier: Apache-2.0
"""Experiments: run several methods with several seeds on one setting, from the user's request to results."""
