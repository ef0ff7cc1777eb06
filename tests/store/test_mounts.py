"""Local paths on a file server are told from those on a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from playhead.store import LocalFiles, Ranges, requests_cost, scheme_files
from playhead.store import mounts as module
from playhead.store.mounts import Mount, network_mount, parse_mounts
from playhead.store.queueing import VARIABLE

ROOT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"


def line(place: str, kind: str) -> str:
    return f"40 22 0:39 / {place} rw,nosuid shared:7 master:3 - {kind} server:/export rw,vers=4.2"


def test_mounts_are_listed_innermost_first() -> None:
    text = "\n".join([ROOT, line("/mnt", "nfs4"), line("/mnt/disk", "xfs"), "not a mount", ""])
    assert parse_mounts(text) == (Mount("/mnt/disk", False), Mount("/mnt", True), Mount("/", False))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "ceph", "cifs", "fuse", "fuse.gcsfuse", "autofs"])
def test_file_servers_are_on_a_network(kind: str) -> None:
    assert Mount("/mnt", True) in parse_mounts(f"{ROOT}\n{line('/mnt', kind)}")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "fuseblk", "nfsd"])
def test_disks_are_not(kind: str) -> None:
    assert parse_mounts(f"{ROOT}\n{line('/mnt', kind)}") == ()


def test_of_two_mounts_in_one_place_the_later_one_is_seen() -> None:
    assert parse_mounts(f"{ROOT}\n{line('/mnt', 'autofs')}\n{line('/mnt', 'nfs4')}")[0] == Mount("/mnt", True)
    assert parse_mounts(f"{ROOT}\n{line('/mnt', 'nfs4')}\n{line('/mnt', 'tmpfs')}") == ()


def test_places_may_have_spaces() -> None:
    found = parse_mounts("\n".join([ROOT, line(r"/my\040data", "nfs4")]))
    assert found[0] == Mount("/my data", True)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Lets the kernel's list say that folders are mounted from a server."""

    def forget() -> None:
        module._mounts.cache_clear()
        module._network_mount.cache_clear()

    def listed(*places: str) -> None:
        (tmp_path / "mountinfo").write_text("\n".join([ROOT, *(line(place, "nfs4") for place in places)]))
        monkeypatch.setattr(module, "_MOUNTS", str(tmp_path / "mountinfo"))
        forget()

    yield listed
    forget()


def test_a_path_is_where_it_is_mounted_also_through_a_link(
    tmp_path: Path, mount: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "server" / "deep")
    server = str(tmp_path / "server")
    mount(server)
    assert network_mount(f"{server}/a.tar") == network_mount(f"{server}/deep/a.tar") == server
    assert network_mount(f"{tmp_path}/link/a.tar") == server
    assert network_mount(f"{tmp_path}/server2/a.tar") is None
    assert network_mount(f"{tmp_path}/a.tar") is None
    monkeypatch.chdir(server)
    assert network_mount("a.tar") == network_mount("deep/a.tar") == server


def test_files_on_a_server_cost_round_trips_and_wait_in_its_queue(
    tmp_path: Path, mount: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = tmp_path / "runtime"
    queues.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(queues))
    monkeypatch.delenv(VARIABLE, raising=False)
    for name in ("server", "disk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"abcdef")
    mount(str(tmp_path / "server"))
    files = scheme_files({})
    for name, costs in (("disk", False), ("server", True)):
        path = str(tmp_path / name / "a")
        assert requests_cost(files, path) == requests_cost(LocalFiles(), path) == costs
        assert files.read(path, files.stamp(path), Ranges([1], [3])) == [b"bc"]
        assert len([*queues.rglob("*.queue")]) == costs
    filler = scheme_files({}, queued=False)  # it has a bound of its own
    mount(str(tmp_path))
    assert filler.read(str(tmp_path / "disk" / "a"), None, Ranges([0], [1])) == [b"a"]
    assert len([*queues.rglob("*.queue")]) == 1
