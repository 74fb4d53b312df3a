# SPDX-License-Identifier: Apache-2.0
"""The kinds of components that module files declare, with a reader for each kind."""
