# SPDX-License-Identifier: Apache-2.0
"""The engine: trains and evaluates many models as one stack. Only this package knows what a device can do."""
