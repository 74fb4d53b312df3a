# SPDX-License-Identifier: Apache-2.0
"""The admin API of a running application, and its live page, over HTTP."""
