# SPDX-License-Identifier: Apache-2.0
"""Amazon Kinesis: its ingress and egress, as any other package could add them."""
