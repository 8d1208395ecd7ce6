# SPDX-License-Identifier: Apache-2.0
"""The paper's tables and figures, run again and set beside the paper's."""
