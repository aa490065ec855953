"""A program run by the tool is the program run by python: same output, status, errors, and surroundings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zipfile
from typing import TYPE_CHECKING

import pytest
from tests.runner.both_ways import DRIVER, without_runpy

if TYPE_CHECKING:
    from tests.runner.both_ways import Place

SURROUNDINGS = """
import sys, os
print(sorted(name for name in globals()))
print(__name__, __file__, __package__, __doc__, __cached__, __spec__ and __spec__.name, type(__loader__).__name__)
print(sys.argv, sys.path, os.getcwd(), sys.modules["__main__"].__dict__ is globals())
print("click" in globals(), type(__builtins__))
"""


def test_surroundings_of_a_script(place: Place) -> None:
    place.write("sub/train.py", SURROUNDINGS)
    place.same("sub/train.py", "--lr", "1", "-m", "x", "--json", "y", "--", "-q")
    place.same("./sub/../sub/train.py")


def test_surroundings_through_a_link(place: Place) -> None:
    place.write("real/train.py", SURROUNDINGS)
    (place.path / "link.py").symlink_to("real/train.py")
    place.same("link.py")


def test_surroundings_of_a_module_and_a_package(place: Place) -> None:
    place.write("pkg/__init__.py", "import sys; print('init', sys.argv)")
    place.write("pkg/__main__.py", SURROUNDINGS)
    place.write("pkg/train.py", SURROUNDINGS + "\nfrom . import other; print(other.x)")
    place.write("pkg/other.py", "x = 3")
    place.same("-m", "pkg", "a")
    place.same("-m", "pkg.train", "--lr", "2", "-m", "q")


def test_surroundings_of_a_folder_and_an_archive(place: Place) -> None:
    place.write("app/__main__.py", SURROUNDINGS + "\nimport helper")
    place.write("app/helper.py", "print('helped')")
    place.same("app", "--x")
    place.same("app/")
    with zipfile.ZipFile(place.path / "app.pyz", "w") as archive:
        archive.write(place.path / "app/__main__.py", "__main__.py")
        archive.write(place.path / "app/helper.py", "helper.py")
    place.same("app.pyz", "1")


def test_compiled_script(place: Place) -> None:
    place.write("t.py", "print('compiled', __file__, __name__)")
    place.python("-c", "import py_compile; py_compile.compile('t.py', 't.pyc')")
    place.same("t.pyc")


@pytest.mark.parametrize(
    "value", ["", "None", "0", "3", "-1", "256", "True", "'some text'", "2.5", "(1, 2)", "''", "'käse'"]
)
def test_exit_statuses(place: Place, value: str) -> None:
    place.write("t.py", f"import sys\nprint('before')\nsys.exit({value})")
    place.same("t.py")


def test_os_exit_is_left_alone(place: Place) -> None:
    place.write("t.py", "import os\nprint('x', flush=True)\nos._exit(7)")
    assert place.same("t.py").status == 7


ERRORS = {
    "plain": "def f(x):\n    return 1 / x\nprint('a')\nf(0)\n",
    "chained": (
        "def f():\n    raise KeyError('a')\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('b') from e\n"
    ),
    "context": "try:\n    int('x')\nexcept ValueError:\n    {}['k']\n",
    "many lines": "raise RuntimeError('first\\nsecond')\n",
    "syntax": "print('never')\ndef f(:\n",
    "indentation": "if 1:\nprint(2)\n",
    "import": "import surely_not_there\n",
    "imported syntax": "import broken\n",
    "base": "class Odd(BaseException): pass\nraise Odd('x')\n",
    "unprintable": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n",
    "hook": "import sys\nsys.excepthook = lambda t, v, tb: print('HOOK', t, v, tb.tb_lineno)\n\n1 / 0\n",
    "broken hook": "import sys\ndef hook(*a): raise OSError('hook')\nsys.excepthook = hook\n1 / 0\n",
    "hook that exits": "import sys\ndef hook(*a): sys.exit(9)\nsys.excepthook = hook\n1 / 0\n",
    "callback": "sorted([1, 2], key=lambda x: 1 / 0)\n",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_read_as_in_python(place: Place, name: str) -> None:
    place.write("broken.py", "x = = 1\n")
    place.write("t.py", ERRORS[name])
    assert place.same("t.py").status in (1, 9)


@pytest.mark.parametrize("source", ["x = 1\0\n", "# coding: nonsense\n", "def f():\n    f()\nf()\n"])
def test_errors_whose_words_depend_on_the_reader_or_the_depth(place: Place, source: str) -> None:
    place.write("t.py", source)
    plain, ours = place.python("t.py"), place.tool("-q", "t.py")
    assert plain.status == ours.status == 1
    kind = plain.err.splitlines()[-1].split(":")[0]
    assert ours.err.splitlines()[-1].startswith(kind)
    assert "neuraldbg" not in ours.err


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are of python 3.11")
def test_error_groups(place: Place) -> None:
    grouped = "def f():\n    1 / 0\ntry:\n    f()\nexcept Exception as e:\n    raise ExceptionGroup('g', [e])\n"
    place.write("t.py", grouped)
    place.same("t.py")


def test_error_in_a_module(place: Place) -> None:
    place.write("pkg/__init__.py", "")
    place.write("pkg/train.py", "def f():\n    raise ValueError('x')\nf()\n")
    place.same("-m", "pkg.train")


def test_pickling_of_classes_of_the_script(place: Place) -> None:
    place.write(
        "t.py",
        "import pickle, typing, dataclasses\n"
        "@dataclasses.dataclass\nclass Point:\n    x: 'int'\n"
        "print(pickle.loads(pickle.dumps(Point(3))), typing.get_type_hints(Point))\n"
        "import __main__\nprint(__main__.Point is Point)\n",
    )
    place.same("t.py")


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("module", [False, True])
def test_multiprocessing(place: Place, method: str, module: bool) -> None:
    place.write(
        "t.py",
        "import multiprocessing as mp\n"
        "class Job:\n    def __init__(self, n): self.n = n\n"
        "def work(q, job): q.put((job.n * 2, __name__ in ('__main__', '__mp_main__')))\n"
        "if __name__ == '__main__':\n"
        f"    c = mp.get_context('{method}')\n    q = c.Queue()\n"
        "    p = c.Process(target=work, args=(q, Job(21)))\n"
        "    p.start(); print(q.get()); p.join(); print(p.exitcode)\n",
    )
    done = place.same(*(["-m", "t"] if module else ["t.py"]))
    assert done.out == "(42, True)\n0\n"


def test_a_forked_child_says_nothing(place: Place) -> None:
    forking = "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(4)\nprint(os.waitpid(pid, 0)[1] >> 8)\n"
    place.write("t.py", forking)
    done = place.tool("-o", "run", "t.py")
    assert (done.status, done.out) == (0, "4\n")
    assert done.err.count("This run ended") == 1


def test_exit_handlers_and_threads_end_as_in_python(place: Place) -> None:
    place.write(
        "t.py",
        "import atexit, threading, time\nx = [1]\natexit.register(lambda: print('bye', x))\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\nprint(pool.submit(lambda: 5).result())\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread', x))).start()\n",
    )
    place.same("t.py")


def test_standard_input_is_the_scripts(place: Place) -> None:
    place.write("t.py", "import sys\nprint(input(), sys.stdin.read())")
    place.same("t.py", stdin="one\ntwo\n")


def test_a_script_that_is_itself_a_click_program(place: Place) -> None:
    place.write(
        "t.py",
        "import click\nprint(click.get_current_context(silent=True))\n@click.command()\n@click.option('--json')\n"
        "def go(json):\n    click.echo(json)\n    raise click.UsageError('mine')\ngo()\n",
    )
    assert place.same("t.py", "--json", "a").status == 2


def test_heavy_modules_are_the_scripts_to_import(place: Place) -> None:
    place.write("t.py", "import sys\nprint([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])")
    assert place.same("t.py").out == "[]\n"


@pytest.mark.parametrize("module", [False, True])
def test_ctrl_c_ends_as_in_python(place: Place, module: bool) -> None:
    source = (
        "import atexit, time\natexit.register(lambda: print('bye'))\n"
        "def train():\n    print('ready', flush=True)\n    time.sleep(30)\ntrain()\n"
    )
    place.write("t.py", source)
    what = ["-m", "t"] if module else ["t.py"]
    plain, ours = _interrupt(place, what), _interrupt(place, [str(DRIVER), "run", "-o", "run", *what])
    assert plain[0] == ours[0] == -signal.SIGINT
    assert plain[1] == ours[1] == "ready\nbye\n"
    assert "KeyboardInterrupt" in ours[2]
    assert ours[2].startswith(without_runpy(plain[2]))
    assert "This run ended as interrupted" in ours[2]
    assert json.loads((place.path / "run/told.json").read_text())["outcome"]["kind"] == "interrupted"


def test_ctrl_c_that_the_script_handles_is_a_normal_end(place: Place) -> None:
    place.write(
        "t.py",
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    import time; time.sleep(5)\n"
        "except KeyboardInterrupt:\n    print('saved')\n",
    )
    place.same("t.py")


def _interrupt(place: Place, command: list[str]) -> tuple[int, str, str]:
    child = subprocess.Popen(
        [sys.executable, *command],
        cwd=place.path,
        env=place.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(0.3)  # into the sleep, so that both are interrupted at the same line
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    return child.returncode, first + out, err
