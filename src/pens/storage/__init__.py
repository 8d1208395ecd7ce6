# SPDX-License-Identifier: Apache-2.0
"""What lies on disk: files that are whole at any moment, and the run directory."""
