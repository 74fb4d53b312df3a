# SPDX-License-Identifier: Apache-2.0
"""YAML with places: nodes, shapes and readers that say where something is wrong."""
