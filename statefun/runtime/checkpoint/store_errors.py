# SPDX-License-Identifier: Apache-2.0
"""The errors of stores: what a store has answered, and what to do, in one sentence."""

from __future__ import annotations

import re

from statefun.sdk.errors import CheckpointError


class StoreError(CheckpointError, OSError):
    """A store has refused a request, or has not answered."""


class UnsupportedRequestError(StoreError):
    """A store does not implement a kind of request, or one of its conditions."""


_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"\b[1-5]\d\d [A-Z][A-Za-z ]+")
"""Answers to requests for the size of an object have only this."""
_EXPIRED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
_UNKNOWN = {
    "401 Unauthorized",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthorizationHeaderMalformed",
}
_REFUSED = {
    "403 Forbidden",
    "AccessDenied",
    "AllAccessDisabled",
    "AccountProblem",
    "MethodNotAllowed",
}

_UNSUPPORTED = {"NotImplemented", "501 Not Implemented"}


def store_error(root: str, text: str) -> StoreError:
    """Return the error for a request that a store has refused or not answered.

    Args:
        root: the bucket, for the message.
        text: the text of the error, in which a refusal has the XML of S3's protocol.

    >>> store_error("s3://b", "403 Forbidden: <Error><Code>AccessDenied</Code>")
    StoreError('the object store of s3://b refuses a request (AccessDenied): its credentials need the right to read, write, delete and list objects')
    """
    code = match[1] if (match := _CODE.search(text)) else ""
    if not code and (status := _STATUS.search(text)):
        code = status[0].strip()
    if code in _EXPIRED:
        reason = f"refuses the credentials ({code}), which have expired: start again with new ones"
    elif code in _UNKNOWN:
        reason = f"refuses the credentials ({code}): correct them, and start again"
    elif code in _REFUSED:
        reason = f"refuses a request ({code}): its credentials need the right to read, write, delete and list objects"
    elif code in _UNSUPPORTED:
        return UnsupportedRequestError(
            f"the object store of {root} does not implement a request ({code}); use another store"
        )
    else:
        first = code or text.strip().splitlines()[0]
        reason = _failed(first)
    return StoreError(f"the object store of {root} {reason}")


def _failed(first: str) -> str:
    return f"has failed ({first}) at each attempt; start again when it is well, to go on after the last committed batch"


_RPC_ERROR = re.compile(r'RPCError\("[\w.$]*?(\w+)", "(.*)')


def hdfs_error(root: str, text: str) -> StoreError:
    r"""Return the error for a request that HDFS has refused or not answered.

    Args:
        root: the URI of the root folder, for the message.
        text: the text of the error, which may go on with a stack trace of Java.

    >>> hdfs_error("hdfs://name:8020", "Permission denied: user=ada, access=WRITE\n\tat org.apache")
    StoreError('hdfs://name:8020 refuses a request (Permission denied: user=ada, access=WRITE): the user needs the right to read and write the folder')
    """
    first = text.replace(r"\n", "\n").strip().splitlines()[0]
    if match := _RPC_ERROR.match(first):
        first = f"{match[1]}: {match[2]}"
    if "ermission denied" in first or "AccessControlException" in first:
        return StoreError(
            f"{root} refuses a request ({first}): the user needs the right to read and write the folder"
        )
    return StoreError(f"{root} {_failed(first)}")
