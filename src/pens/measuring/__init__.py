# SPDX-License-Identifier: Apache-2.0
"""What is measured, and typed results."""
