# SPDX-License-Identifier: Apache-2.0
"""Object stores in trouble: requests are tried again, or end with one sentence; a write is there or has failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from object_store import ObjectStore
from store_proxy import Fault, Request, StoreProxy, store_proxy

from statefun.runtime.checkpoint import object_store
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lease import LeaseTimes
from statefun.runtime.checkpoint.store_errors import StoreError

Work = Callable[[Folder], object]


def _write(folder: Folder) -> None:
    folder.write("a", b"new")


def _create(folder: Folder) -> None:
    assert folder.create("b", b"of this driver")


def _remove(folder: Folder) -> None:
    folder.remove("a")


WORKS: dict[str, tuple[Work, dict[str, bytes]]] = {
    "read": (lambda folder: folder.read("a"), {"a": b"old"}),
    "write": (_write, {"a": b"new"}),
    "create": (_create, {"a": b"old", "b": b"of this driver"}),
    "list": (lambda folder: folder.names(), {"a": b"old"}),
    "has": (lambda folder: folder.has("a"), {"a": b"old"}),
    "remove": (_remove, {}),
}
"""What a driver does with a folder, and the files that are there afterwards."""

PASSING = {
    "throttled": Fault(503, "SlowDown"),
    "internal": Fault(500, "InternalError"),
    "unavailable": Fault(503, "ServiceUnavailable"),
    "handled": Fault(500, "InternalError", is_handled=True),
    "cut": Fault(is_cut=True),
}
LASTING = {
    "expired": (Fault(400, "ExpiredToken"), r"\(ExpiredToken\), which have expired"),
    "wrong": (Fault(403, "InvalidAccessKeyId"), r"credentials \(InvalidAccessKeyId\)"),
    "forbidden": (Fault(403, "AccessDenied"), r"\(AccessDenied\).* need the right"),
    "down": (Fault(503, "SlowDown"), r"has failed \(SlowDown\) at each attempt"),
    "silent": (Fault(), "has failed .* at each attempt"),
}


@pytest.fixture
def proxy(store_server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    """Return a proxy before the store, for clients that give up soon."""
    monkeypatch.setattr(object_store, "_RETRY_TIME", timedelta(seconds=60))
    monkeypatch.setattr(object_store, "_ATTEMPTS", 3)
    with store_proxy(store_server.port) as proxy:
        yield proxy


@pytest.fixture
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client wait for the answer to a request for a short time; it must come before the client."""
    monkeypatch.setattr(object_store, "_REQUEST_TIME", timedelta(seconds=1))


@pytest.fixture
def folder(store: Folder, store_server: ObjectStore, proxy: StoreProxy) -> Folder:
    """Return a folder with one file behind the proxy."""
    store.write("a", b"old")
    return Folder.at(store.location.replace(f":{store_server.port}", f":{proxy.port}"))


def _content(store: Folder) -> dict[str, bytes]:
    return {name: store.read(name) for name in store.names()}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again(
    store: Folder, folder: Folder, proxy: StoreProxy, fault: str, work: str
) -> None:
    """Of two faults in a row, also if the store has handled the request and its answer alone is lost."""
    if fault == "cut" and work not in {"read", "list"}:
        pytest.skip("the answer has no content")
    left = [PASSING[fault]] * (1 if fault == "cut" else 2)
    proxy.fault = lambda _: left.pop() if left else None

    do, content = WORKS[work]
    do(folder)

    assert not left
    assert _content(store) == content


@pytest.mark.usefixtures("short_requests")
@pytest.mark.parametrize("work", WORKS)
def test_a_swallowed_request_is_tried_again(
    store: Folder, folder: Folder, proxy: StoreProxy, work: str
) -> None:
    """Its connection stays open and silent for ever; another one has the answer, and if none has, it is an error."""
    left = [Fault(is_hole=True)]
    proxy.fault = lambda _: left.pop() if left else None

    do, content = WORKS[work]
    do(folder)

    assert not left
    assert _content(store) == content
    proxy.fault = lambda _: Fault(is_hole=True)
    with pytest.raises(StoreError, match="at each attempt"):
        folder.read("a")


def test_a_change_is_over_before_another_driver_takes_over() -> None:
    """With all attempts, of which there is a second one also if the first one is swallowed."""
    times = LeaseTimes()

    assert times.lapse - times.expiry > object_store.LONGEST_CHANGE
    assert object_store._REQUEST_TIME < object_store._RETRY_TIME  # noqa: SLF001 - what a user cannot set


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_is_one_sentence(
    store: Folder, folder: Folder, proxy: StoreProxy, fault: str, work: str
) -> None:
    """It has a stable code, and no secrets; files are as they were."""
    answer, text = LASTING[fault]
    proxy.fault = lambda _: answer

    with pytest.raises(StoreError) as failed:
        WORKS[work][0](folder)

    if work != "has":  # an answer to HEAD has a status alone
        assert re.search(text, failed.value.message)
    assert failed.value.code == "SF600"
    assert "\n" not in str(failed.value)
    assert "secret" not in str(failed.value)
    assert _content(store) == {"a": b"old"}


def test_a_bucket_that_can_only_be_read(store: Folder, folder: Folder, proxy: StoreProxy) -> None:
    """Reading goes on, and each change is refused."""

    def refused(request: Request) -> Fault | None:
        return None if request.method in {"GET", "HEAD"} else Fault(403, "AccessDenied")

    proxy.fault = refused

    assert (folder.read("a"), folder.names()) == (b"old", ["a"])
    for work in ("write", "create", "remove"):
        with pytest.raises(StoreError, match="AccessDenied"):
            WORKS[work][0](folder)
    assert _content(store) == {"a": b"old"}


def test_the_answer_to_a_first_request_decides_nothing(
    store: Folder, folder: Folder, proxy: StoreProxy
) -> None:
    """A file was created, although the connection ended before the answer came."""
    left = [Fault(is_handled=True)]
    proxy.fault = lambda _: left.pop() if left else None

    assert folder.create("b", b"of this driver")
    assert _content(store) == {"a": b"old", "b": b"of this driver"}
