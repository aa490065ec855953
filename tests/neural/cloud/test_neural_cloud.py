"""``CloudExecutor`` as document 002 uses it, over a stand-in for the command ``neural`` where that needs a training."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from neural.cloud import child, cloud_execution, machine
from neural.cloud.cloud_execution import CloudError, CloudExecutor
from neural.errors import NeuralError

SOURCE = Path(__file__).parents[3] / "src"
TINY = """
network Tiny {
  input: (4,)
  layers:
    Dense(3, "relu")
    Output(2, "softmax")
  loss: "sparse_categorical_crossentropy"
  optimizer: SGD(learning_rate=0.1)
  train { epochs: 1 batch_size: 8 }
}
"""
STAND_IN = """
import http.server, os, pathlib, sys, time
args = sys.argv[1:]
pathlib.Path("args").write_text(" ".join(args))
mode = os.environ.get("STAND_IN_MODE", "")
if mode == "fails":
    sys.exit("neural: no data fit")
if args[0] == "run":
    print("trained", args)
    sys.exit(0)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(403)
        self.end_headers()
port = int(args[args.index("--port") + 1])
server = http.server.HTTPServer(("127.0.0.1", port), Page)
print(f"neuraldbg: the dashboard is at http://127.0.0.1:{port}/?token=abc", file=sys.stderr, flush=True)
if "--tunnel" in args:
    time.sleep(0.3)
    said = "there is no tunnel: refused" if mode == "none" else "the tunnel is at https://a.example.org/?token=abc\\n "
    print("neuraldbg: " + said, file=sys.stderr, flush=True)
server.serve_forever()
"""


def alive(pid):
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    file = tmp_path / "stand_in.py"
    file.write_text(STAND_IN)
    monkeypatch.setattr(child, "COMMAND", (sys.executable, str(file)))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "cloudflared"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("neuraldbg.dashboard.tunnel.find_spec", lambda name: None)
    return tmp_path


@pytest.fixture
def executor():
    with CloudExecutor() as made:
        yield made
    assert not made.temp_dir.exists()


# ---------------------------------------------------------------- where it is


@pytest.mark.parametrize("name", [*machine.VARIABLES, machine.UNKNOWN])
def test_the_cloud_is_known_by_its_variable(monkeypatch, name):
    for variable in machine.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    if name in machine.VARIABLES:
        monkeypatch.setenv(machine.VARIABLES[name], "1")
    with CloudExecutor() as made:
        assert made.environment == name
    with CloudExecutor(environment="ours") as made:
        assert made.environment == "ours"


def test_a_gpu_is_found_without_torch(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "gpus")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.has_gpu() is False
    program = tmp_path / "nvidia-smi"
    for text, found in (("echo 'GPU 0: Some (UUID: x)'", True), ("echo No devices; exit 6", False), ("exit 0", False)):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        assert machine.has_gpu() is found
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert machine.has_gpu() is True
    code = """
import sys
from neural.cloud.cloud_execution import CloudExecutor
CloudExecutor().cleanup()
print([name for name in ("torch", "lark", "numpy") if name in sys.modules])
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- models


def test_a_model_is_compiled_to_the_file_that_the_command_writes(executor, tmp_path):
    path = executor.compile_model(TINY, output_file=tmp_path / "tiny.py")
    assert path == str(tmp_path / "tiny.py")
    text = Path(path).read_text()
    assert "def build_model" in text
    compile(text, path, "exec")
    with pytest.raises(NeuralError, match="Dens"):
        executor.compile_model(TINY.replace("Dense", "Dens"))
    assert executor.compile_model(TINY).startswith(str(executor.temp_dir))


def test_a_run_gives_what_was_printed(executor, stand_in, monkeypatch):
    file = stand_in / "m.neural"
    file.write_text(TINY)
    result = executor.run_model(file, dataset="digits", epochs=2, batch_size=16)
    assert result["success"] is True
    assert f"['run', '{file}', '--dataset', 'digits', '--epochs', '2', '--batch-size', '16']" in result["stdout"]
    monkeypatch.setenv("STAND_IN_MODE", "fails")
    result = executor.run_model(file)
    assert (result["success"], result["error"]) == (False, "neural: no data fit")


def test_a_picture_needs_the_part_that_draws(executor, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "neural.visual", None)
    with pytest.raises(CloudError, match="models cannot be drawn here"):
        executor.visualize_model(TINY)
    drawing = type(sys)("neural.visual")
    drawing.drawn = lambda plan, kind: f"<{plan.name} {kind}>"
    monkeypatch.setitem(sys.modules, "neural.visual", drawing)
    path = executor.visualize_model(TINY, "svg", tmp_path / "t.svg")
    assert Path(path).read_text() == "<Tiny svg>"


def test_there_is_no_interface_without_code(executor):
    with pytest.raises(CloudError, match="no no-code interface: write the model as text"):
        executor.start_nocode_interface()


# ---------------------------------------------------------------- the dashboard


def test_the_example_of_the_document(stand_in, capsys):
    """Of document 002, *Integration with Cloud*, as it is written there."""
    dsl_code = TINY
    namespace = {"dsl_code": dsl_code}
    exec(
        """
from neural.cloud.cloud_execution import CloudExecutor

executor = CloudExecutor()

# Start debugger with tunnel for remote access
dashboard_info = executor.start_debug_dashboard(
    dsl_code,
    setup_tunnel=True
)

print(f"Access debugger at: {dashboard_info['tunnel_url']}")
""",
        namespace,
    )
    assert capsys.readouterr().out == "Access debugger at: https://a.example.org/?token=abc\n"
    executor, info = namespace["executor"], namespace["dashboard_info"]
    assert set(info) == {"session_id", "dashboard_url", "process_id", "tunnel_url"}
    args = (executor.temp_dir / "args").read_text().split()
    port = args[args.index("--port") + 1]
    assert args == ["debug", args[1], "--port", port, "--dataset", "synthetic", "--backend", "pytorch",
                    "--tunnel", "cloudflared"]  # fmt: skip
    assert Path(args[1]).read_text() == TINY
    # It listens by the time that it is returned.
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(info["dashboard_url"], timeout=10)
    assert executor.setup_ngrok_tunnel(int(port)) == info["tunnel_url"]
    assert executor.setup_ngrok_tunnel(1) is None
    assert alive(info["process_id"])
    executor.cleanup()
    assert not alive(info["process_id"])
    assert not executor.temp_dir.exists()
    executor.cleanup()
    with pytest.raises(CloudError, match="cleaned up"):
        executor.start_debug_dashboard(dsl_code)


def test_without_a_tunnel_its_address_is_none_and_the_log_says_why(executor, stand_in, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "neural.cloud")
    monkeypatch.setenv("STAND_IN_MODE", "none")
    info = executor.start_debug_dashboard(TINY)
    assert info["tunnel_url"] is None
    assert "No tunnel was opened: refused" in caplog.text
    (stand_in / "bin" / "cloudflared").unlink()
    other = executor.start_debug_dashboard(TINY)
    assert other["tunnel_url"] is None
    assert "no program cloudflared on PATH" in caplog.text
    assert "pip install '.[tunnel]'" in caplog.text
    assert other["dashboard_url"] != info["dashboard_url"]
    assert "--tunnel" not in (executor.temp_dir / "args").read_text()
    caplog.clear()
    assert executor.start_debug_dashboard(TINY, setup_tunnel=False)["tunnel_url"] is None
    assert not caplog.text


def test_a_command_that_fails_is_an_error_with_its_words(executor, stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN_MODE", "fails")
    with pytest.raises(CloudError, match="there is no dashboard; the command said:\nneural: no data fit"):
        executor.start_debug_dashboard(TINY)
    with pytest.raises(NeuralError, match="Dens"):
        executor.start_debug_dashboard(TINY.replace("Dense", "Dens"))


def test_what_was_started_ends_with_the_interpreter(stand_in):
    code = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
from neural.cloud import child
from neural.cloud.cloud_execution import CloudExecutor
child.COMMAND = (sys.executable, {str(stand_in / "stand_in.py")!r})
print(CloudExecutor().start_debug_dashboard({TINY!r}, setup_tunnel=False)["process_id"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    until = time.monotonic() + 10
    while alive(int(done.stdout)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_ended_command_is_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "COMMAND", (sys.executable, "-c", "print('the dashboard is at http://x/')"))
    running = child.Child([], tmp_path, tmp_path / "log")
    assert running.wait_for(cloud_execution._HERE, 60)[1] == "http://x/"
    assert running.wait_for(cloud_execution._TUNNEL, 60) is None
    running.end()
