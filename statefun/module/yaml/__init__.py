# SPDX-License-Identifier: Apache-2.0
"""YAML with locations: nodes, shapes and readers that report the location of each problem."""
