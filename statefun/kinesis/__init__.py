# SPDX-License-Identifier: Apache-2.0
"""Ingresses and egresses of Amazon Kinesis, added by the same means as those of other packages."""
