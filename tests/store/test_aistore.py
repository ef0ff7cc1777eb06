"""Objects of AIStore, read through a gateway and a node on loopback, well-behaved and not."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ais_server import Ais, ais_cluster
from playhead.errors import DataError, PlayheadError, StoreError
from playhead.store import AistoreFiles, Ranges, SchemeFiles, ais_requests, list_files, open_file
from playhead.testing import check_files

FILES = AistoreFiles()
DATA = bytes(range(256)) * 400
KEYS = ["d/part-0.jsonl", "d/part-1.jsonl", "d/part-2.jsonl", "d/e/part-3.jsonl", "d/.hidden", "f.txt", "d[1].txt"]
BIG = "ais://bucket/big"


@pytest.fixture
def ais(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ais]:
    for name in [name for name in os.environ if name.startswith("AIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(ais_requests, "FIRST_WAIT_SECONDS", 0.01)
    objects = {f"bucket/{key}": b"row\n" for key in KEYS}
    with ais_cluster({"bucket/big": DATA, "bucket/x.tar": b"tar", "bucket/a b%20ü": b"odd", **objects}) as cluster:
        for name, value in cluster.environment().items():
            monkeypatch.setenv(name, value)
        yield cluster


def problem(url: str, kind: type[PlayheadError] = StoreError) -> PlayheadError:
    with pytest.raises(kind) as caught:
        open_file(FILES, url).read(0, 100)
    assert caught.value.problem.startswith(url)
    return caught.value


def test_it_keeps_the_laws_of_files(ais: Ais) -> None:
    def write(name: str, data: bytes) -> str:
        ais.objects[f"bucket/{name}"] = data
        return f"ais://bucket/{name}"

    check_files(FILES, write, lambda path: ais.objects.pop(path.removeprefix("ais://")))


def test_ranges_are_requests_of_their_own_followed_by_one_that_asks_for_the_stamp(ais: Ais) -> None:
    stamp = SchemeFiles().stamp(BIG)
    ais.served.clear()
    found = SchemeFiles().read(BIG, stamp, Ranges([5, 3, 900], [5, 10, 1000]))
    assert [bytes(part) for part in found] == [b"", DATA[3:10], DATA[900:1000]]
    assert sorted(ais.served[:2]) == [f"GET /v1/objects/bucket/big bytes={span}" for span in ("3-9", "900-999")]
    assert ais.served[2:] == ["HEAD /v1/objects/bucket/big"]


def test_odd_names_are_read(ais: Ais) -> None:
    assert open_file(FILES, "ais://bucket/a b%20ü").read(0, 9) == b"odd"


@pytest.mark.parametrize("as_json", [True, False])
def test_objects_are_listed_by_pattern_over_several_pages(ais: Ais, as_json: bool) -> None:
    ais.as_json = as_json
    expected = [f"ais://bucket/d/part-{i}.jsonl" for i in range(3)]
    assert list_files(SchemeFiles(), ["ais://bucket/d/*.jsonl"]) == expected
    assert list_files(SchemeFiles(), ["ais://bucket/**/part-[13].jsonl"]) == [
        "ais://bucket/d/e/part-3.jsonl",
        "ais://bucket/d/part-1.jsonl",
    ]
    assert list_files(SchemeFiles(), ["ais://bucket/d[1].txt"]) == ["ais://bucket/d[1].txt"]
    with pytest.raises(DataError, match="no file matches"):
        list_files(SchemeFiles(), ["ais://bucket/none/*"])


def test_a_listing_that_does_not_end_is_said(ais: Ais) -> None:
    ais.repeats_pages = True
    with pytest.raises(StoreError, match=r"ais://bucket/\*\*: cannot be listed"):
        list_files(SchemeFiles(), ["ais://bucket/**"])


def test_an_answer_of_other_bytes_than_those_asked_for_is_refused(ais: Ais) -> None:
    file = open_file(FILES, BIG)
    ais.shift = 7
    with pytest.raises(StoreError, match="answered with another range"):
        file.read(10, 100)


def test_a_node_that_recovers_is_asked_again_through_the_gateway(ais: Ais) -> None:
    file = open_file(FILES, BIG)
    ais.asked.clear()
    ais.statuses[:] = [503, 500, 429]
    assert file.read(0, 100) == DATA[:100]
    ais.cuts[:] = [10, 0]
    assert file.read(0, 5_000) == DATA[:5_000]
    assert ais.statuses == ais.cuts == []
    assert len(ais.asked) == (3 + 1 + 1) + (2 + 1 + 1)


def test_a_node_that_does_not_recover_is_given_up(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ais_requests, "MOST_RETRIES", 2)
    ais.statuses[:] = [503] * 50
    assert "status 503" in str(problem(BIG))
    assert len(ais.statuses) == 47
    ais.statuses.clear()
    file = open_file(FILES, BIG)
    ais.cuts[:] = [1] * 50
    with pytest.raises(StoreError, match="cannot be reached"):
        file.read(0, 100)


def test_an_object_that_changed_is_refused(ais: Ais) -> None:
    file = open_file(FILES, BIG)
    for new in (DATA[::-1], DATA + b"x", DATA[:50]):
        ais.objects["bucket/big"] = new
        for firsts in ([0], [1000], [0, 1000]):
            with pytest.raises(StoreError, match="changed since it was indexed"):
                FILES.read(BIG, file.stamp, Ranges(firsts, [first + 10 for first in firsts]))


def test_the_token_goes_to_the_gateway_and_to_its_node(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    ais.token = "a-secret"  # noqa: S105 - of this test
    error = problem(BIG)
    assert "access denied" in error.problem
    assert error.expected == "a token in AIS_AUTHN_TOKEN, or in `store: {authn_token: ...}` of the source"
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "a-secret")
    assert open_file(FILES, BIG).read(0, 3) == DATA[:3]


def test_options_of_a_bucket_come_before_the_environment(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    ais.token = "another"  # noqa: S105 - of this test
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("TOKEN_OF_TEST", "another")
    files = AistoreFiles({"ais://bucket": {"endpoint_url": ais.endpoint, "authn_token": "env:TOKEN_OF_TEST"}})
    assert open_file(files, BIG).read(0, 3) == DATA[:3]


@pytest.mark.parametrize("location", ["http://169.254.169.254", "http://0xa9fea9fe", "file:///etc"])
def test_a_redirect_to_a_link_local_address_is_not_followed(ais: Ais, location: str) -> None:
    ais.location = location
    assert "redirects to an address that is not followed" in problem(BIG).problem


def test_a_second_redirect_is_not_followed(ais: Ais) -> None:
    ais.node_redirects = True
    error = problem(BIG)
    assert "a node redirects again" in error.problem
    assert "AIS_ENDPOINT, or `store: {endpoint_url: ...}` of the source" in str(error.fix)


def test_a_gateway_that_is_not_known_or_not_there_is_said(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ais_requests, "MOST_RETRIES", 1)
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be reached" in problem(BIG).problem
    monkeypatch.delenv("AIS_ENDPOINT")
    with pytest.raises(StoreError, match="no gateway of AIStore is known"):
        FILES.stamp(BIG)
    monkeypatch.setenv("AIS_ENDPOINT", "http://169.254.169.254")
    with pytest.raises(StoreError, match="its endpoint cannot be used"):
        FILES.stamp(BIG)
    monkeypatch.setenv("AIS_ENDPOINT", ais.endpoint)
    monkeypatch.setenv("AIS_READ_TIMEOUT", "soon")
    with pytest.raises(StoreError, match="AIS_READ_TIMEOUT is not a number"):
        FILES.stamp(BIG)


def test_a_member_of_an_archive_is_told_to_name_the_archive(ais: Ais) -> None:
    error = problem("ais://bucket/x.tar/a.wav", DataError)
    assert "ais://bucket/x.tar" in str(error.expected)
    assert "webdataset" in str(error.fix)
    assert problem("ais://bucket/none", DataError).expected is None


def test_a_server_without_ranges_is_said(ais: Ais) -> None:
    ais.without_ranges = True
    error = problem(BIG)
    assert "does not support byte ranges" in error.problem
    assert error.fix == "check AIS_ENDPOINT, or `store: {endpoint_url: ...}` of the source"


def test_a_missing_package_is_said_with_the_command(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(StoreError, match="needs the package urllib3") as caught:
        FILES.stamp(BIG)
    assert caught.value.fix == "pip install 'playhead[ais]'"


FORK = """
import os, pickle, sys
file = pickle.load(sys.stdin.buffer)
file.read(0, 1)
for _ in range(3):
    if not (child := os.fork()):
        os.write(1, str(len(file.read(0, 100))).encode())
        os._exit(0)
    assert len(file.read(0, 100)) == 100
    os.waitpid(child, 0)
"""


def test_it_travels_to_another_process_and_reads_in_forks_of_it(ais: Ais) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        input=pickle.dumps(open_file(FILES, BIG)),
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == b"100" * 3


def test_waits_between_attempts_grow_and_vary(ais: Ais, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(ais_requests, "FIRST_WAIT_SECONDS", 1.0)
    ais.statuses[:] = [503] * 50
    problem(BIG)
    assert len(waits) == ais_requests.MOST_RETRIES
    for number, wait in enumerate(waits):
        assert min(2**number, 10) / 2 <= wait <= min(2**number, 10)
