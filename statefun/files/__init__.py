# SPDX-License-Identifier: Apache-2.0
"""Files of a folder: their ingress and egress, as any other package could add them."""
