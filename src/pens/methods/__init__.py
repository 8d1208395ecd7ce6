# SPDX-License-Identifier: Apache-2.0
"""Methods of learning together, one file each. `pens.parts.METHODS` finds them by name."""
