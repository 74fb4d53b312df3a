# SPDX-License-Identifier: Apache-2.0
"""An application with functions of its own, beside those that its module file has elsewhere."""

from languages.commanded import commanded

import statefun

PLAIN, COROUTINE = "com.example.local/plain", "com.example.local/coroutine"
functions = commanded(PLAIN, COROUTINE)

if __name__ == "__main__":
    statefun.run(functions=functions)
