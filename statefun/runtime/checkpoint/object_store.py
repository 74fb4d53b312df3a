# SPDX-License-Identifier: Apache-2.0
"""Access to the objects of an S3-compatible store through obstore, as files.

Unlike pyarrow, obstore can create an object only if there is none of its name, and needs one request for each step. An
object is replaced in one step, and is shown only when it is complete. A store has no folders: a folder exists if there
are objects in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from statefun.runtime.checkpoint.boot_clock import now
from statefun.runtime.checkpoint.checkpoint_files import FileFacts, StoreFiles
from statefun.runtime.checkpoint.store_errors import StoreError, store_error

if TYPE_CHECKING:  # importing it takes a while, and most checkpoints are local
    from obstore.store import S3Store

T = TypeVar("T")

SCHEMES = frozenset({"s3", "s3a", "s3n"})
"""The schemes of URIs of S3-compatible stores: pyarrow's, and Hadoop's."""
_OPTIONS = frozenset(
    {"region", "endpoint_override", "scheme", "access_key", "secret_key", "session_token"}
)
"""The options that the query of a URI may have; pyarrow has the same ones."""
_ATTEMPTS = 8
_PAUSE = timedelta(milliseconds=100)
_PARTS_AT_ONCE = 2
_REQUEST_TIME = timedelta(seconds=9)
"""How long a request may take, with its content."""
_RETRY_TIME = timedelta(seconds=10)
"""How long a request is tried again if the store does not answer, or refuses it for the moment. It is longer than the time
of a request, so that one whose connection is dead is tried again through another connection."""
_LONGEST_BACKOFF = timedelta(seconds=1)
"""The longest time between two attempts."""
LONGEST_CHANGE = _RETRY_TIME + _RETRY_TIME + _LONGEST_BACKOFF + _REQUEST_TIME
"""How long a change takes at most, with all its attempts, if :func:`_again_if_silent` makes the last ones."""
_SMALL = 5 * 1024 * 1024
"""The size of content, in bytes, up to which an object is written in one request."""
_NO_ANSWER = "error sending request"
"""In the text of an error: the time of a request is over, or its connection has ended."""


def _translated(step: Callable[..., T]) -> Callable[..., T]:
    """Raise an error of obstore as a StoreError with one line of text; a missing object is a FileNotFoundError."""

    @wraps(step)
    def translated(self: ObjectStoreFiles, *arguments: Any) -> T:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            return step(self, *arguments)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreError(f"the bucket of {self.root} does not exist") from None
            raise
        except BaseError as error:
            raise store_error(self.root, str(error)) from error

    return translated


class ObjectStoreFiles(StoreFiles):
    """Access to the objects of a bucket as files; paths begin below the bucket.

    Args:
        store: the bucket.
        root: the bucket's name, for errors.
    """

    def __init__(self, store: S3Store, root: str) -> None:
        self.store = store
        self.root = root

    @_translated
    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the entries of a folder by name: the facts of files, and None for folders."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        found = _again_if_cut(lambda: obstore.list_with_delimiter(self.store, folder or None))
        entries: dict[str, FileFacts | None] = dict.fromkeys(map(_name, found["common_prefixes"]))
        for each in found["objects"]:
            if each["path"] != folder:
                entries[_name(each["path"])] = _facts(each)
        return entries

    @_translated
    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files in a folder and below it, in bytes, by their paths in the folder."""
        return {
            each["path"].removeprefix(folder).lstrip("/"): each["size"]
            for each in self._below(folder)
        }

    @_translated
    def facts(self, path: str) -> FileFacts | None:
        """Return the facts of a file; None if no file has this path."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        with suppress(FileNotFoundError):
            return _facts(obstore.head(self.store, path))
        return None

    @_translated
    def has(self, path: str) -> bool:
        """Return whether a file with this path exists; a folder is no object, and would need a further request."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        with suppress(FileNotFoundError):
            obstore.head(self.store, path)
            return True
        return False

    def has_folder(self, path: str) -> bool:
        """Return whether there are files in a folder or below it."""
        return bool(self.list(path))

    @_translated
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        return cast("BinaryIO", _Reader(obstore.open_reader(self.store, path)))

    @_translated
    def read(self, path: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        return bytes(obstore.get(self.store, path).bytes())

    @_translated
    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        # Few parts at once: each must be through in the time of a request.
        obstore.put(
            self.store,
            path,
            content,
            use_multipart=len(content) > _SMALL,
            max_concurrency=_PARTS_AT_ONCE,
        )

    @_translated
    def create(self, path: str, content: bytes) -> bool:
        """Create a file only if there is none with this path; return whether the file has this content now.

        If the answer to a first request is lost, the second one is refused because of the first one. Then the content
        of the file shows whether this call has created it. So no two callers may create the same content.
        """
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - as above

        for attempt in range(_ATTEMPTS):
            try:
                _again_if_silent(
                    lambda: obstore.put(
                        self.store, path, content, mode="create", use_multipart=False
                    )
                )
            except (AlreadyExistsError, PreconditionError):
                # Some stores answer the same to requests that were made at the same time: then there is none yet.
                with suppress(FileNotFoundError):
                    return self.read(path) == content
                time.sleep(_PAUSE.total_seconds() * 2**attempt)
            else:
                return True
        raise StoreError(
            f"the object store of {self.root} refuses to create {path}, which does not exist"
        )

    @_translated
    def move(self, path: str, target: str) -> None:
        """Copy a file to another path, and delete the original; raises FileNotFoundError."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        obstore.rename(self.store, path, target)

    @_translated
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        with suppress(FileNotFoundError):
            _again_if_silent(lambda: obstore.delete(self.store, path))

    @_translated
    def remove_several(self, paths: Sequence[str]) -> None:
        """Delete several files, if they exist, with one request for many of them."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        if paths:
            _again_if_silent(lambda: obstore.delete(self.store, [*paths]))

    @_translated
    def remove_folder(self, path: str) -> None:
        """Delete all files in a folder and below it."""
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        paths = [each["path"] for each in self._below(path)]
        if paths:
            _again_if_silent(lambda: obstore.delete(self.store, paths))

    def _below(self, folder: str) -> Sequence[Mapping[str, Any]]:
        import obstore  # noqa: PLC0415 - see TYPE_CHECKING above

        def listed() -> list[Mapping[str, Any]]:
            chunks: Iterable[Any] = obstore.list(self.store, folder or None)
            return [each for chunk in chunks for each in chunk]

        # Hadoop marks an empty folder by an object with the folder's name.
        return [each for each in _again_if_cut(listed) if each["path"] != folder]


def _again_if_cut(listed: Callable[[], T]) -> T:
    """List once more if the answer ends in its middle; obstore tries again by itself in all other cases."""
    from obstore.exceptions import GenericError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        return listed()
    except GenericError as error:
        if "list response body" not in str(error):
            raise
    return listed()


def _again_if_silent(change: Callable[[], T]) -> T:
    """Make a change once more if it got no answer; obstore itself does not repeat conditional changes and POSTs."""
    from obstore.exceptions import GenericError  # noqa: PLC0415 - see TYPE_CHECKING above

    begun = now()  # another driver may have taken over while this machine was asleep
    try:
        return change()
    except GenericError as error:
        took = timedelta(seconds=now() - begun)
        if _NO_ANSWER not in str(error) or took > _RETRY_TIME:
            raise
    return change()


class _Reader:
    """An open object, with the methods of a binary file that callers need."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __enter__(self) -> _Reader:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, all if ``size`` is negative."""
        return bytes(self._reader.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position from which the next bytes are read, as for any file; return the position."""
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        """Return the position from which the next bytes are read."""
        return int(self._reader.tell())

    def close(self) -> None:
        """Close the object."""
        self._reader.close()


def object_store_at(uri: str) -> tuple[ObjectStoreFiles, str]:
    """Return the bucket that a URI names, and the path in it.

    Raises:
        ValueError: if the URI has no bucket, or an option that is not known.
    """
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ValueError("the URI must have the form s3a://BUCKET/PATH")
    options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise ValueError(f"the option {unknown[0]} is not one of {', '.join(sorted(_OPTIONS))}")
    return _bucket(parts.netloc, tuple(sorted(options.items()))), parts.path.strip("/")


def endpoint_of(uri: str) -> str | None:
    """Return the endpoint's URL, from the options of a URI or else from the environment; None stands for Amazon's.

    >>> endpoint_of("s3a://bucket/path?endpoint_override=localhost:9000&scheme=http")
    'http://localhost:9000'
    """
    options = dict(parse_qsl(urlsplit(uri).query))
    if "endpoint_override" in options:
        return f"{options.get('scheme', 'https')}://{options['endpoint_override']}"
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def region_of(uri: str) -> str | None:
    """Return the region from the options of a URI, or from the environment if the options name none."""
    options = dict(parse_qsl(urlsplit(uri).query))
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return options.get("region") or next(filter(None, map(os.environ.get, names)), None)


def credentials_of(uri: str) -> tuple[str, str, str]:
    """Return the access key, the secret key and the session token in the options of a URI; empty if there are none."""
    options = dict(parse_qsl(urlsplit(uri).query))
    access_key, secret_key, token = (
        options.get(name, "") for name in ("access_key", "secret_key", "session_token")
    )
    return access_key, secret_key, token


@lru_cache(maxsize=64)
def _bucket(name: str, options: tuple[tuple[str, str], ...]) -> ObjectStoreFiles:
    """Return the files of a bucket of an object store; calls with equal arguments share connections."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - see TYPE_CHECKING above
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    given = dict(options)
    query = "&".join(f"{key}={value}" for key, value in options)
    uri = f"s3://{name}/?{query}"
    endpoint, region = endpoint_of(uri), region_of(uri)
    config: Any = {"region": region or "us-east-1"}
    for option, key in (
        ("access_key", "access_key_id"),
        ("secret_key", "secret_access_key"),
        ("session_token", "session_token"),
    ):
        if option in given:
            config[key] = given[option]
    if endpoint is not None:
        config["endpoint"] = endpoint
    try:
        store = S3Store(
            name,
            config=config,
            client_options={
                "allow_http": (endpoint or "").startswith("http:"),
                "timeout": _REQUEST_TIME,
                "connect_timeout": _REQUEST_TIME,
            },
            retry_config={
                "max_retries": _ATTEMPTS,
                "retry_timeout": _RETRY_TIME,
                "backoff": {
                    "init_backoff": _PAUSE,
                    "max_backoff": _LONGEST_BACKOFF,
                    "base": 2,
                },
            },
        )
    except BaseError as error:
        raise ValueError(str(error).splitlines()[0]) from None  # the further lines have options
    return ObjectStoreFiles(store, f"s3://{name}")


def _facts(meta: Mapping[str, Any]) -> FileFacts:
    return FileFacts(meta["size"], int(meta["last_modified"].timestamp() * 1e9))


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
