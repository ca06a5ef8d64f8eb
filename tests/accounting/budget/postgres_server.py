"""A PostgreSQL server of our own, which may be killed."""

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from glob import glob

import psycopg


def _find(name: str) -> str | None:
    """Return where a program of PostgreSQL is: Debian keeps them out of the path, by version."""
    folders = sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def is_installed() -> bool:
    return bool(_find("initdb") and _find("postgres"))


class Server:
    """PostgreSQL on a free port; as root, under the postgres account, as it demands."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://tester@127.0.0.1:{self._port}/postgres"
        # Not under pytest's folder, which another account may not enter.
        self._folder = f"/tmp/skprivacy-postgres-{uuid.uuid4().hex}"
        self._how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        if os.geteuid() == 0:
            self._how["user"] = "postgres"
        subprocess.run(
            [_find("initdb"), "-D", self._folder, "-U", "tester", "-A", "trust", "--no-sync"],
            check=True,
            **self._how,
        )

    def start(self) -> None:
        """Start, and wait until it answers: after a kill that is once the log has been replayed."""
        for _ in range(1000):  # a busy machine takes long
            running = subprocess.Popen(
                [_find("postgres"), "-D", self._folder, "-p", str(self._port), "-c",
                 "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._folder}"],
                start_new_session=True, **self._how,
            )  # fmt: skip
            while running.poll() is None:  # it ends if what was killed has not yet let go
                if self._answers():
                    self._running = running
                    return
                time.sleep(0.1)
        raise TimeoutError("the server does not start")

    def _answers(self) -> bool:
        """Tell whether it is this server: another may have taken the port that was free."""
        try:
            with psycopg.connect(self.url) as connection:
                [folder] = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return folder == self._folder

    def kill(self) -> None:
        """End all its processes at once, as a loss of power would."""
        os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait(300)

    def stop(self) -> None:
        self._running.send_signal(signal.SIGINT)  # without waiting for idle connections
        self._running.wait(300)
        shutil.rmtree(self._folder, ignore_errors=True)
