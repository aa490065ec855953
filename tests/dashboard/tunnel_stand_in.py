"""A stand-in for cloudflared on PATH, and one for pyngrok: a real relay on another port of the loopback.

Its host name is ``127.1``, a name that leads to this machine and that no dashboard allows by itself.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.1"
_RELAY = '''
import os, pathlib, re, signal, socket, sys, threading, time

HOME = pathlib.Path(os.environ["STAND_IN"])
MODE = (HOME / "mode").read_text()

def relay(target):
    """Pass connections on to host:port; gives the port of the way in."""
    host, _, port = target.rpartition(":")
    way = socket.create_server(("127.0.0.1", 0), backlog=64)

    def pump(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve():
        while True:
            here, _ = way.accept()
            there = socket.create_connection((host, int(port)))
            if MODE == "inject":  # what a tunnel with a policy of its own may do
                token = (HOME / "token").read_bytes()
                first = here.recv(65536)
                there.sendall(re.sub(rb"^GET (\\S*?)(\\?\\S*)? ", rb"GET \\1?token=" + token + b" ", first))
            threading.Thread(target=pump, args=(here, there), daemon=True).start()
            threading.Thread(target=pump, args=(there, here), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return way.getsockname()[1]
'''
_CLOUDFLARED = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
(HOME / "pid").write_text(str(os.getpid()))
(HOME / "args").write_text(" ".join(sys.argv[1:]))
target = sys.argv[-1].removeprefix("http://")
print("2026-11-27T00:00:00Z INF Thank you: https://developers.cloudflare.com/cloudflare-one/connections", flush=True)
if MODE == "ends":
    print("ERR Post https://api.trycloudflare.com/tunnel\\nERR failed to request quick Tunnel: refused\\x1b[31m")
    sys.exit(7)
if MODE == "garbage":
    while True:
        sys.stdout.buffer.write(os.urandom(1 << 16) + b"| https://\\xff |")
        sys.stdout.flush()
if MODE == "silent":
    time.sleep(600)
if MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if MODE == "inject":
    while not (HOME / "token").exists():
        time.sleep(0.05)
address = {"open": "http://example.org", "nowhere": "http://127.1:1"}.get(MODE) or f"http://127.1:{relay(target)}"
print("INF |  Your quick Tunnel has been created! Visit it at (it may take some time to be reachable):  |", flush=True)
print(f"INF |  {address}        |", flush=True)
while not (HOME / "die").exists():
    time.sleep(0.05)
print("ERR lost", flush=True)
sys.exit(3)
"""
_NGROK = """
class _Held:
    def __init__(self):
        import subprocess
        self.proc = subprocess.Popen(["sleep", "600"])
        (HOME / "pid").write_text(str(self.proc.pid))

class ngrok:
    held = None

    @classmethod
    def connect(cls, addr, proto, name, bind_tls):
        assert os.path.isfile(conf.one.ngrok_path), "would be downloaded"
        (HOME / "args").write_text(f"{addr} {proto} {name} {bind_tls} {conf.one.ngrok_path}")
        cls.held = _Held()
        return type("Tunnel", (), {"public_url": f"http://127.1:{relay(addr)}"})

    @classmethod
    def get_ngrok_process(cls):
        return cls.held

    @classmethod
    def kill(cls):
        cls.held.proc.kill()
        cls.held.proc.wait()

class conf:
    one = type("Config", (), {"ngrok_path": str(HOME / "configured-ngrok")})

    @classmethod
    def get_default(cls):
        return cls.one
"""


class StandIn:
    """Programs in a folder, which is put first on PATH and on PYTHONPATH."""

    def __init__(self, folder: Path, mode: str = "good") -> None:
        self.home = folder / "stand-in"
        (self.home / "bin").mkdir(parents=True)
        self.mode(mode)
        program = self.home / "bin" / "cloudflared"
        program.write_text(f"#!{sys.executable}\n{textwrap.dedent(_RELAY)}{_CLOUDFLARED}")
        program.chmod(0o755)
        package = self.home / "packages" / "pyngrok"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"{_RELAY}{_NGROK}")

    def mode(self, mode: str) -> None:
        """Say what it does when it is started next."""
        (self.home / "mode").write_text(mode)

    def env(self, path: str = "") -> dict[str, str]:
        paths = [path] if path else []
        return {
            "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*paths, str(self.home / "packages")]),
            "STAND_IN": str(self.home),
        }

    def configure_ngrok(self) -> None:
        """Put the program there that pyngrok is configured to use."""
        (self.home / "configured-ngrok").write_text("a program")

    def die(self) -> None:
        (self.home / "die").touch()

    def pid(self) -> int | None:
        """Id of the tunnel's program; None before it has started."""
        file = self.home / "pid"
        return int(text) if file.exists() and (text := file.read_text()) else None

    def args(self) -> str:
        return (self.home / "args").read_text()
