# SPDX-License-Identifier: Apache-2.0
"""What is settled before the first micro-batch: bindings, recovery, functions that are gone."""
