# SPDX-License-Identifier: Apache-2.0
"""Projects of users: new ones from a template, and running their programs."""
