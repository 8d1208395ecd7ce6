# SPDX-License-Identifier: Apache-2.0
"""Many models as one stack. What a device can do is known here and nowhere else."""
