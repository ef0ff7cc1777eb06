"""Objects read from real servers on loopback, well-behaved and not."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from threading import Barrier

import pytest

from loopback import Loopback, serving
from playhead.errors import DataError, PlayheadError, StoreError
from playhead.store import Ranges, RemoteFiles, SchemeFiles, clients, list_files, objects, open_file
from playhead.store.addresses import address_of
from playhead.store.pieces import MOST_AT_ONCE
from playhead.store.remote import MOST_BYTES, list_remote

FILES = RemoteFiles()
DATA = bytes(range(256)) * 400
KEYS = ["d/part-0.jsonl", "d/part-1.jsonl", "d/part-2.jsonl", "d/e/part-3.jsonl", "d/.hidden", "f.txt", "d[1].txt"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    objects = {f"/bucket/{key}": b"row\n" for key in KEYS}
    with serving({"/bucket/big": DATA, "/bucket/a b%20ü": b"odd", "/bucket/empty": b"", **objects}) as served:
        for name, value in served.environment().items():
            monkeypatch.setenv(name, value)
        yield served


@pytest.fixture(params=["s3", "http"])
def big(request: pytest.FixtureRequest, server: Loopback) -> str:
    """One object by both kinds of address."""
    return "s3://bucket/big" if request.param == "s3" else f"{server.address}/bucket/big"


def problem(url: str, kind: type[PlayheadError] = StoreError) -> PlayheadError:
    with pytest.raises(kind) as caught:
        open_file(FILES, url).read(0, 100)
    assert caught.value.problem.startswith(url.partition("?")[0])
    return caught.value


def test_objects_are_read_as_local_files_are(big: str) -> None:
    file = open_file(FILES, big)
    assert (file.path, file.size) == (big, len(DATA))
    assert file.read(len(DATA) - 2, 10) == DATA[-2:]
    assert file.read(len(DATA) + 5, 10) == b""
    assert b"".join(file.pieces(10_000)) == DATA


def test_a_large_range_is_read_in_requests_that_no_time_out_can_reach(server: Loopback) -> None:
    server.objects["/bucket/large"] = large = os.urandom(2 * MOST_BYTES + 7)
    file = open_file(FILES, "s3://bucket/large")
    server.requests.clear()
    assert file.read(1, len(large)) == large[1:]
    assert sorted(server.requests) == [
        *sorted(
            f"GET /bucket/large bytes={first}-{min(first + MOST_BYTES, len(large)) - 1}"
            for first in range(1, len(large), MOST_BYTES)
        ),
        "HEAD /bucket/large",
    ]
    server.requests.clear()
    buffer = memoryview(bytearray(len(large)))
    FILES.read(file.path, file.stamp, Ranges([0], [len(large)]), [buffer])
    assert buffer == large
    assert len(server.requests) == 4


def test_several_ranges_are_a_request_each_and_one_that_asks_whether_the_object_changed(server: Loopback) -> None:
    stamp = FILES.stamp("s3://bucket/big")
    server.requests.clear()
    FILES.read("s3://bucket/big", stamp, Ranges([5, 3, 900], [5, 10, 1000]))
    assert sorted(server.requests[:2]) == ["GET /bucket/big bytes=3-9", "GET /bucket/big bytes=900-999"]
    assert server.requests[2:] == ["HEAD /bucket/big"]


def test_one_range_is_one_request_and_none_is_none(server: Loopback) -> None:
    stamp = FILES.stamp("s3://bucket/big")
    server.requests.clear()
    FILES.read("s3://bucket/big", stamp, Ranges([5, 3], [5, 10]))
    FILES.read("s3://bucket/big", stamp, Ranges([5], [5]))
    assert server.requests == ["GET /bucket/big bytes=3-9"]


def test_an_object_known_by_its_tag_is_asked_for_by_it(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    server.objects["/bucket/big"] = DATA[::-1]
    server.requests.clear()
    server.answered.clear()
    with pytest.raises(StoreError, match="changed since it was indexed"):
        file.read(0, 10)
    assert server.answered == [412, 200]  # no byte of the other object is sent


def test_a_server_that_refuses_every_condition_is_read_without(big: str, server: Loopback) -> None:
    server.refuses_conditions = True
    assert open_file(FILES, big).read(3, 10) == DATA[3:13]


def test_ranges_in_one_call_are_in_flight_together(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    server.meeting = Barrier(5)
    firsts = list(range(0, 100_000, 10_000))
    found = FILES.read(big, file.stamp, Ranges(firsts, [first + 100 for first in firsts]))
    assert [bytes(part) for part in found] == [DATA[first : first + 100] for first in firsts]
    assert not server.meeting.broken


def test_many_ranges_are_in_flight_in_several_calls(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    server.meeting = Barrier(MOST_AT_ONCE)
    firsts = list(range(0, 100 * MOST_AT_ONCE, 100))[::-1]
    found = FILES.read(big, file.stamp, Ranges(firsts, [first + 50 for first in firsts]))
    assert [bytes(part) for part in found] == [DATA[first : first + 50] for first in firsts]
    assert not server.meeting.broken


def test_odd_names_and_empty_objects_are_read(server: Loopback) -> None:
    assert open_file(FILES, "s3://bucket/a b%20ü").read(0, 9) == b"odd"
    assert open_file(FILES, f"{server.address}/bucket/a%20b%2520%C3%BC").read(0, 9) == b"odd"
    assert open_file(FILES, "s3://bucket/empty").read(0, 9) == b""
    odd = f"{server.address}/bucket/d%5B1%5D.txt"
    assert FILES.list(odd) == [odd]
    assert open_file(FILES, odd).read(0, 9) == b"row\n"


@pytest.mark.parametrize("new", [DATA[::-1], DATA + b"x", DATA[:50]], ids=["other", "longer", "shorter"])
def test_an_object_that_changed_since_it_was_stamped_is_refused(big: str, server: Loopback, new: bytes) -> None:
    file = open_file(FILES, big)
    server.objects["/bucket/big"] = new
    assert FILES.stamp(big) != file.stamp
    for firsts in ([0], [1000], [0, 1000], [1000, 90_000]):
        with pytest.raises(StoreError, match="changed since it was indexed") as caught:
            FILES.read(big, file.stamp, Ranges(firsts, [first + 10 for first in firsts]))
        assert f"{len(new):,} bytes" in str(caught.value.found)


def test_objects_are_listed_under_a_prefix_and_by_pattern_over_several_pages(server: Loopback) -> None:
    expected = [f"s3://bucket/d/{name}" for name in (".hidden", *(f"part-{i}.jsonl" for i in range(3)))]
    assert [url for url in list_remote("s3://bucket/d/") if "/e/" not in url] == expected
    assert len(list_remote("s3://bucket")) == len(server.objects)
    assert list_files(SchemeFiles(), ["s3://bucket/d/*.jsonl"]) == expected[1:]
    assert list_files(SchemeFiles(), ["s3://bucket/**/part-[13].jsonl", "s3://bucket/f.txt"]) == [
        "s3://bucket/d/e/part-3.jsonl",
        "s3://bucket/d/part-1.jsonl",
        "s3://bucket/f.txt",
    ]
    assert list_files(SchemeFiles(), ["s3://bucket/d[1].txt"]) == ["s3://bucket/d[1].txt"]


def test_a_pattern_in_vain_an_object_listed_twice_and_a_web_listing_are_refused(server: Loopback) -> None:
    for patterns, words in [
        (["s3://bucket/none/*"], "no file matches"),
        (["s3://bucket/f.txt", "s3://bucket/*.txt"], "listed twice"),
        (["s3://bucket/none"], "no such object"),
        ([f"{server.address}/bucket/*"], "web servers cannot list files"),
    ]:
        with pytest.raises(DataError, match=words):
            list_files(SchemeFiles(), patterns)


@pytest.mark.parametrize("statuses", [[500], [503, 500], [200, 429]])
def test_a_server_that_recovers_is_asked_again(big: str, server: Loopback, statuses: list[int]) -> None:
    server.statuses[:] = statuses
    assert open_file(FILES, big).read(0, 100) == DATA[:100]
    assert server.statuses == []


@pytest.mark.parametrize("fault", ["cuts", "statuses"])
def test_several_ranges_are_asked_for_again_one_by_one(big: str, server: Loopback, fault: str) -> None:
    file = open_file(FILES, big)
    if fault == "cuts":
        server.cuts[:] = [400, 1, 0, 7]
    else:
        server.statuses[:] = [503, 200, 500, 429]
    firsts = list(range(0, 100_000, 20_000))
    found = FILES.read(big, file.stamp, Ranges(firsts, [first + 5_000 for first in firsts]))
    assert [bytes(part) for part in found] == [DATA[first : first + 5_000] for first in firsts]
    assert server.cuts == server.statuses == []


def test_a_body_cut_short_is_asked_for_from_there_on(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    server.cuts[:] = [4000, 1]
    assert file.read(0, len(DATA)) == DATA
    assert server.cuts == []


def test_a_server_that_does_not_recover_is_given_up(
    big: str, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_RETRIES", 2)
    clients._client.cache_clear()
    server.statuses[:] = [500] * 50
    error = problem(big)
    assert "500 Internal Server Error" in str(error)
    assert len(server.statuses) == 47
    server.statuses.clear()
    server.cuts[:] = [10] * 50
    assert "cannot be read" in problem(big).problem
    server.cuts.clear()
    stamp = FILES.stamp(big)
    for name, value in (("statuses", 500), ("cuts", 1)):
        setattr(server, name, [value] * 50)
        with pytest.raises(StoreError, match=big):
            FILES.read(big, stamp, Ranges([0, 5000], [100, 6000]))
        setattr(server, name, [])
    clients._client.cache_clear()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_says_which_environment_variables_are_looked_at(server: Loopback, status: int) -> None:
    server.statuses[:] = [status]
    error = problem("s3://bucket/big")
    assert "access denied" in error.problem
    assert "AWS_ACCESS_KEY_ID" in str(error.expected)
    server.statuses[:] = [status]
    assert problem(f"{server.address}/bucket/big").expected == "a public address"


@pytest.mark.parametrize("ask", [objects.version_of, objects.read_object, objects.names_under])
def test_a_refusal_before_writing_is_of_the_right_to_write(server: Loopback, ask: Callable[[str], object]) -> None:
    server.statuses[:] = [403]
    with pytest.raises(StoreError, match="access denied") as caught:
        ask("s3://bucket/big")
    assert caught.value.fix == (
        "set these variables, or, for sidecars, `store` of the source; or ask the owner for the right to write it"
    )


def test_missing_credentials_are_said(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_RETRIES", 1)
    for name in ("AWS_SKIP_SIGNATURE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.address)  # where a machine in the cloud asks who it is
    error = problem("s3://bucket/big")
    assert "no credentials" in error.problem
    assert "AWS_SECRET_ACCESS_KEY" in str(error.expected)
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    assert "AZURE_STORAGE_ACCOUNT_NAME" in str(problem("az://container/key").expected)


def test_what_is_missing_is_said(big: str) -> None:
    assert problem(f"{big}-not", DataError).problem == f"{big}-not: no such object"


def test_a_server_without_ranges_is_said(server: Loopback) -> None:
    server.without_ranges = True
    assert "does not support byte ranges" in problem(f"{server.address}/bucket/big").problem


def test_a_server_whose_files_could_change_unnoticed_is_said(server: Loopback) -> None:
    file = open_file(FILES, f"{server.address}/bucket/big")
    server.without_marks = True
    assert "does not say what distinguishes a changed object" in problem(file.path).problem
    with pytest.raises(StoreError):
        file.read(0, 10)


def test_a_server_without_head_is_said(server: Loopback) -> None:
    server.statuses[:] = [405]
    assert "refuses HEAD requests" in problem(f"{server.address}/bucket/big").problem


def test_a_store_out_of_reach_is_said(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_RETRIES", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        error = problem("s3://bucket/big")
    assert "cannot be reached" in error.problem
    assert "AWS_ENDPOINT_URL" in str(error.fix)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    assert "AWS_ALLOW_HTTP=true" in str(problem("s3://bucket/big").fix)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/file", "no store for ftp://"),
        ("msc://profile/file", "Multi-Storage Client"),
        ("s3:///file", "names no bucket"),
        ("https://host/file?signature=secret", "with a query"),
        ("https://host?signature=secret", "with a query"),
        ("ftp://host/file?signature=secret", "no store for ftp://"),
        ("http://127.0.0.1:1/data//file", "empty part"),
    ],
)
def test_addresses_that_cannot_be_asked_are_refused(url: str, words: str) -> None:
    error = problem(url, DataError)
    assert words in error.problem
    assert "secret" not in str(error)


def test_an_open_object_travels_to_another_process(server: Loopback) -> None:
    file = open_file(FILES, "s3://bucket/big")
    program = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer).read(0, 1 << 20)))"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(file), capture_output=True, check=True)
    assert int(done.stdout) == len(DATA)


FORK = """
import os, sys
from playhead.store import SchemeFiles, open_file
file = open_file(SchemeFiles(), sys.argv[1])
if child := os.fork():
    os.waitpid(child, 0)
    sys.exit()
try:
    file.read(0, 1)
except Exception as error:
    os.write(1, str(error).encode())
os._exit(0)
"""


def test_a_fork_is_refused_where_it_would_wait_for_ever(server: Loopback) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, "s3://bucket/big"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert "cannot be read in a fork" in done.stdout


def test_stores_are_loaded_only_when_used() -> None:
    program = "import sys, playhead.testing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "obstore" not in done.stdout.split()


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, StoreError, "cannot be read"),
        (401, StoreError, "access denied"),
        (403, StoreError, "access denied"),
        (404, DataError, "no such object"),
    ],
)
def test_a_listing_that_is_refused_is_an_error_without_the_query(
    server: Loopback, status: int, kind: type[PlayheadError], words: str
) -> None:
    server.statuses[:] = [status]
    with pytest.raises(kind, match=words) as caught:
        FILES.list("s3://bucket/d/*")
    assert "list-type" in server.requests[-1]
    shown = "".join(traceback.format_exception(caught.value))
    assert "list-type" not in shown
    assert "a-secret" not in shown  # servers repeat tokens in what they say
    assert status == 404 or "(Broken)" in shown


def test_a_file_that_was_stamped_and_is_gone_is_a_store_error(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    del server.objects["/bucket/big"]
    for firsts in ([0], [0, 1000]):
        with pytest.raises(StoreError, match="no such file"):
            FILES.read(big, file.stamp, Ranges(firsts, [first + 10 for first in firsts]))


def test_an_answer_that_is_too_short_is_a_store_error(big: str, server: Loopback) -> None:
    file = open_file(FILES, big)
    server.shortened = 3
    for firsts in ([0], [0, 1000]):
        with pytest.raises(StoreError, match=big):
            FILES.read(big, file.stamp, Ranges(firsts, [first + 10 for first in firsts]))


def test_a_server_that_never_answers_is_a_store_error(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_file(FILES, f"{server.address}/bucket/big")
    monkeypatch.setattr(clients, "MOST_RETRIES", 0)
    monkeypatch.setattr(clients, "REQUEST_SECONDS", 1)
    clients._client.cache_clear()
    server.silent_seconds = 30
    with pytest.raises(StoreError, match="cannot be reached"):
        file.read(0, 10)
    clients._client.cache_clear()


@pytest.mark.parametrize("host", ["user:a-secret@127.0.0.1:9", "169.254.169.254", "metadata.google.internal"])
def test_addresses_with_passwords_and_link_local_ones_are_refused_before_any_request(host: str) -> None:
    with pytest.raises(DataError) as caught:
        address_of(f"http://{host}/a.jsonl")
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["endpoint_url", "AWS_ENDPOINT_URL", "base_url"])
@pytest.mark.parametrize("value", ["127.0.0.1:9", "http://169.254.169.254"])
def test_an_endpoint_that_no_client_can_use_is_an_error_that_names_it(name: str, value: str) -> None:
    with pytest.raises(StoreError, match=name):
        clients.check_endpoints("s3://bucket", {name: value})
    clients.check_endpoints("s3://bucket", {name: "http://127.0.0.1:9"})


def test_the_endpoint_of_a_metadata_service_and_those_of_other_stores_are_not_the_stores_own(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AZURE_MSI_ENDPOINT", "GOOGLE_BASE_URL"):
        monkeypatch.setenv(name, "http://169.254.169.254/")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    assert RemoteFiles().stamp("s3://bucket/big").size > 0


def test_an_endpoint_without_a_scheme_is_refused_where_a_client_is_made() -> None:
    keys = {"access_key_id": "loopback", "secret_access_key": "loopback", "region": "loopback"}
    with pytest.raises(StoreError, match="endpoint cannot be used"):
        RemoteFiles({"s3://bucket": {"endpoint_url": "127.0.0.1:9", "allow_http": True, **keys}}).stamp("s3://bucket/a")
