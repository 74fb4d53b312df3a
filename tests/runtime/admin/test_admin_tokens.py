# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.runtime.admin.admin_tokens import VARIABLE, Tokens
from statefun.sdk.errors import ConfigurationError

ONE, ANOTHER = "3f0c8d4be2a94a52b2f0", "91d2a0f0c3c54e6ea8b1"


def tokens(folder: Path, text: str, **environment: str) -> Tokens:
    """Return the tokens of a file and an environment."""
    file = folder / "tokens"
    file.write_text(text)
    return Tokens.of(file, environment)


def test_a_token_belongs_to_one_client(tmp_path: Path) -> None:
    """Else the audit log names another client than the one that has made the change."""
    with pytest.raises(ConfigurationError, match=r"line 3: line 1 has the same token"):
        tokens(tmp_path, f"alice {ONE}\n\nbob {ONE}\n")
    # One client may have two tokens, and its token may be in the environment, too.
    found = tokens(tmp_path, f"alice {ONE}\nalice {ANOTHER}\n", **{VARIABLE: ONE})
    assert found.client(f"Bearer {ONE}") == found.client(f"Bearer {ANOTHER}") == "alice"


def test_a_name_without_a_token_is_no_token(tmp_path: Path) -> None:
    """A long name, which others know, would let them in; a file of tokens alone has no names."""
    with pytest.raises(ConfigurationError, match=r"line 2: a line must be '<name> <token>'"):
        tokens(tmp_path, f"alice {ONE}\ngrafana-of-production\n")
    found = tokens(tmp_path, f"{ONE}\n# a comment\n{ANOTHER}\n")
    assert found.client(f"Bearer {ANOTHER}") == "line 3"


@pytest.mark.parametrize("client", ["alice", "alice-of-production"])
def test_errors_quote_no_token(tmp_path: Path, client: str) -> None:
    """Also if names and tokens are in the wrong order: an error names lines."""
    text = f"{ONE} {client}\n{ANOTHER} {client}\n"

    with pytest.raises(ConfigurationError, match=r"tokens, .*line \d: ") as raised:
        tokens(tmp_path, text)

    assert ONE not in str(raised.value)
    assert ANOTHER not in str(raised.value)
