"""Bad input gets one clear line, and nothing is lost."""

from __future__ import annotations

import sqlite3

import pytest
from tests.end_to_end.place import MODEL, TRAIN, Place, healthy, script


def one_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    assert "Traceback" not in text, text
    return lines[-1] if lines else ""


def test_no_such_script(place: Place) -> None:
    done = place.tool("run", "nothing.py")
    assert done.status == 2
    assert "nothing.py" in one_line(done.err)
    assert not (place.path / "neuraldbg-runs").exists()


def test_a_script_with_a_syntax_error(place: Place) -> None:
    place.write("train.py", "import torch\nfor x in:\n    pass\n")
    plain = place.python("train.py")
    done = place.run("train.py")
    assert (plain.status, done.status) == (1, 1)
    assert done.err.startswith(plain.err)


def test_an_output_folder_that_cannot_be_written(place: Place) -> None:
    import os

    if os.getuid() == 0:
        folder = "/proc/neuraldbg-run"
    else:
        (place.path / "locked").mkdir(mode=0o500)
        folder = "locked/run"
    place.write("train.py", healthy() + "print('trained')\n")
    done = place.tool("run", "-o", folder, "train.py")
    assert (done.status, done.out) == (0, "trained\n"), done.err
    assert "Traceback" not in done.err
    assert "healthy" in done.err.lower()
    assert "cannot be saved" in done.err or "not saved" in done.err


@pytest.mark.skipif(not hasattr(__import__("os"), "getuid"), reason="needs resource limits")
def test_a_full_disk(place: Place) -> None:
    """A limit on the size of files stands in for it: the write fails in the same way, with the run half recorded."""
    done = place.run(
        source=script(
            """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
        """,
            MODEL,
            TRAIN.format(steps=1500),
            "print('trained')\n",
        )
    )
    assert (done.status, done.out) == (0, "trained\n"), done.err
    assert "Traceback" not in done.err
    assert "memory" in done.err
    assert "healthy" in done.err.lower()
    assert "1500 steps" in done.err or "1,500 steps" in done.err


def test_runs_that_cannot_be_read(place: Place) -> None:
    done = place.run(source=healthy())
    assert done.status == 0, done.err
    file = done.run / "rank0.ndbg"
    good = file.read_bytes()
    cases = {
        "nowhere": lambda: None,
        "empty": (place.path / "empty").mkdir,
        "text.ndbg": lambda: place.write("text.ndbg", "this is no database, " * 50),
        "none.ndbg": lambda: place.write("none.ndbg", ""),
        "half.ndbg": lambda: (place.path / "half.ndbg").write_bytes(good[: len(good) // 3]),
        "rot.ndbg": lambda: (place.path / "rot.ndbg").write_bytes(good[:100] + bytes(255 - b for b in good[100:])),
    }
    for name, make in cases.items():
        make()
        shown = place.tool("explain", name)
        assert shown.status == 2, (name, shown.out, shown.err)
        assert name in one_line(shown.err).replace("\n", ""), (name, shown.err)

    newer = place.path / "newer.ndbg"
    newer.write_bytes(good)
    with sqlite3.connect(newer) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + 1}")
    db.close()
    shown = place.tool("explain", "newer.ndbg")
    assert shown.status == 2, (shown.out, shown.err)
    assert "newer" in one_line(shown.err) or "later" in one_line(shown.err)
    assert place.tool("explain", "run").status == 0


@pytest.mark.long
def test_several_runs_in_one_folder(place: Place) -> None:
    place.write("train.py", healthy(5))
    for name in ("one", "two"):
        assert place.tool("run", "-q", "-o", f"runs/{name}", "train.py").status == 0
    done = place.tool("explain", "runs")
    assert done.status == 2
    assert "one" in done.err
    assert "two" in done.err
