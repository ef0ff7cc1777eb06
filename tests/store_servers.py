"""Real servers of objects on loopback, each with credentials of its own and ended by its process id."""

from __future__ import annotations

import base64
import hmac
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from getpass import getuser
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

_START_SECONDS = 30.0


@contextmanager
def nginx(folder: Path, work: Path) -> Iterator[int]:
    """A web server of the files in a folder; its port. It writes under `work`."""
    port = free_port()
    config = work / "nginx.conf"
    places = "".join(
        f"  {name}_temp_path {work}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"pid {work}/pid;\nerror_log {work}/errors;\nworker_processes auto;\ndaemon off;\nevents {{}}\n"
        f"http {{\n  access_log off;\n  sendfile on;\n  keepalive_requests 1000000;\n{places}"
        f"  server {{ listen 127.0.0.1:{port}; root {folder}; }}\n}}\n"
    )
    with running([_program("nginx"), "-c", str(config), "-e", f"{work}/errors", "-g", f"user {getuser()};"], port):
        yield port


@contextmanager
def moto() -> Iterator[S3]:
    """A server of S3 for correctness: conditional puts, listings in pages. It keeps objects in its memory."""
    port = free_port()
    command = [_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, _environment()) as pid:
        yield S3(port, pid)


@contextmanager
def seaweedfs(work: Path) -> Iterator[S3]:
    """A server of S3 for load and kills. Its files are under `work`: started there again, it has them and its ports."""
    key = {"accessKey": S3.access_key_id, "secretKey": S3.secret_access_key}
    identity = {"name": "tests", "credentials": [key], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (work / "s3.json").write_text(json.dumps({"identities": [identity]}))
    known = work / "ports.json"
    if not known.exists():
        names = [f"{name}.port{kind}" for name in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
        known.write_text(json.dumps({name: free_port() for name in names}))
    ports = json.loads(known.read_text())
    s3 = ports["s3.port"]
    options = {
        "dir": work,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "s3.config": work / "s3.json",
        "volume.max": 100,
        "volume.preStopSeconds": 0,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 256,
        **ports,
    }
    command = [_program("weed"), "server", *(f"-{name}={value}" for name, value in options.items())]
    with running(command, s3, _environment()) as pid:
        found = S3(s3, pid)
        _wait_until_it_answers(found)
        yield found


def num_stored_bytes(work: Path) -> int:
    """The bytes of objects that SeaweedFS has written under `work`: a moment after it answers."""
    return sum(path.stat().st_size for path in work.glob("*.dat"))


@contextmanager
def azurite(work: Path) -> Iterator[Azure]:
    """A server of Azure blobs, with the account that its documentation names."""
    port = free_port()
    command = [_program("azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(work)]
    with running([*command, "--silent", "--skipApiVersionCheck", "--disableTelemetry"], port, _environment()) as pid:
        yield Azure(port, pid)


@dataclass(frozen=True)
class S3:
    """Where a server of S3 is, and what a client needs; `options` are those of a source's `store`."""

    port: int
    pid: int
    access_key_id: ClassVar[str] = "loopback-key"
    secret_access_key: ClassVar[str] = "loopback-secret"  # noqa: S105 - of a server that lives for one test

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str | bool]:
        return {
            "endpoint": self.address,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": "us-east-1",
            "allow_http": True,
        }

    def environment(self) -> dict[str, str]:
        """What makes `s3://` mean this server."""
        names = {"endpoint": "AWS_ENDPOINT_URL"}
        return {
            names.get(name, f"AWS_{name.upper()}"): str(value).lower() if value is True else str(value)
            for name, value in self.options.items()
        }

    def make_bucket(self, name: str) -> str:
        """A new bucket; its URL."""
        import botocore.session

        session = botocore.session.get_session()
        client = session.create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.address,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )
        client.create_bucket(Bucket=name)
        client.close()
        return f"s3://{name}"


@dataclass(frozen=True)
class Azure:
    """Where a server of Azure blobs is, and what a client needs."""

    port: int
    pid: int
    account_name: ClassVar[str] = "devstoreaccount1"
    account_key: ClassVar[str] = (  # published: every emulator has it
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    )

    @property
    def options(self) -> dict[str, str | bool]:
        return {
            "endpoint": f"http://127.0.0.1:{self.port}/{self.account_name}",
            "account_name": self.account_name,
            "account_key": self.account_key,
            "allow_http": True,
        }

    def make_container(self, name: str) -> str:
        """A new container; its URL."""
        path = f"/{self.account_name}/{name}"
        query = {"restype": "container"}
        date = formatdate(usegmt=True)
        about = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
        resource = f"/{self.account_name}{path}" + "".join(f"\n{key}:{query[key]}" for key in sorted(query))
        text = "\n".join(["PUT", *[""] * 11, about, resource])
        signed = hmac.digest(base64.b64decode(self.account_key), text.encode(), "sha256")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}?{urlencode(query)}",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": "2021-08-06",
                "Content-Length": "0",
                "Authorization": f"SharedKey {self.account_name}:{base64.b64encode(signed).decode()}",
            },
        )
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - on loopback
            return f"az://{name}"


@contextmanager
def running(command: list[str], port: int, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """A process that listens on a port of loopback; its process id. It is ended with the block."""
    output = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=output, stdout=output, stderr=output, env=environment)
    try:
        _wait_until_it_listens(process, port)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port below those that the system gives to connections: it is still free when a server is started again."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def has(program: str) -> bool:
    return _find(program) is not None


def _find(program: str) -> str | None:
    """In the environment of Python, among the packages of node that `make test-full` installs, or of the system."""
    python = Path(sys.executable).parent
    places = [python, python.parent / "node_modules" / ".bin"]
    return shutil.which(program, path=os.pathsep.join([*map(str, places), os.environ["PATH"], "/usr/sbin"]))


def _program(name: str) -> str:
    found = _find(name)
    assert found is not None, name
    return found


def _environment() -> dict[str, str]:
    """This process's, without what would be credentials or endpoints of others."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}


def _wait_until_it_answers(server: S3) -> None:
    """SeaweedFS listens before it can store."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.make_bucket(f"ready-{time.time_ns()}")
        except Exception:  # botocore makes a class for each answer
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen on port {port}")
