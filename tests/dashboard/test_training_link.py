"""The dashboard's end of the connection to a training: which requests pass, and what is said of a silent training."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from neuraldbg.dashboard import training_link
from neuraldbg.dashboard.training_link import TrainingLink, is_request

SECRET = "between the two"


@contextmanager
def linked():
    listening = socket.create_server(("127.0.0.1", 0))
    place = listening.getsockname()
    link = TrainingLink(listening, SECRET, 7.0, key_of=lambda file: f"key of {file}")
    link.start()
    try:
        yield link, place
    finally:
        link.close()
        deadline = time.monotonic() + 10
        while any(thread.name == "neuraldbg-awaits-training" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def connected(link, place):
    """Connect as the training does, and wait until the link has noticed."""
    connection = Client(place, family="AF_INET", authkey=SECRET.encode())
    deadline = time.monotonic() + 10
    while link._connection is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return connection


@pytest.mark.parametrize(
    "body",
    [{"do": "look"}, {"do": "look", "layers": 12}, {"do": "pause"}, {"do": "continue", "stop": 3},
     {"do": "layer", "stop": 3, "layers": 0}, {"do": "step", "stop": 3}, {"do": "clear all"},
     {"do": "set", "layer": "", "moment": "after_layer"}, {"do": "clear", "layer": "a.b", "moment": "after_backward"}],
)  # fmt: skip
def test_what_the_page_sends_passes(body):
    assert is_request(json.loads(json.dumps(body)))


@pytest.mark.parametrize(
    "body",
    [None, [], "pause", {}, {"do": None}, {"do": ["pause"]}, {"do": "eval"}, {"do": "continue"},
     {"do": "continue", "stop": "3"}, {"do": "continue", "stop": True}, {"do": "pause", "code": "import os"},
     {"do": "set", "layer": "fc1"}, {"do": "set", "layer": 1, "moment": "after_layer"},
     {"do": "set", "layer": "fc1", "moment": "before_step"},
     {"do": "set", "layer": "x" * 1001, "moment": "after_layer"},
     {"do": "look", "lease": 1e9}, {"do": "look", "id": 1}],
)  # fmt: skip
def test_anything_else_does_not(body):
    assert not is_request(body)


def test_a_request_is_answered_with_the_key_of_the_run():
    with linked() as (link, place):
        assert link.ask({"do": "look"}) == {"state": "waiting"}
        training = connected(link, place)

        def answer():
            asked = json.loads(training.recv_bytes())
            assert (asked["do"], asked["lease"]) == ("pause", 7.0)
            training.send_bytes(json.dumps({"state": "running", "file": "rank0.ndbg", "id": asked["id"]}).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        assert link.ask({"do": "pause"}) == {"state": "running", "file": "rank0.ndbg", "run": "key of rank0.ndbg"}
        thread.join()
        training.close()
        assert link.ask({"do": "look"}) == {"state": "over"}
        assert link.ask({"do": "look"}) == {"state": "over"}


def test_a_late_answer_is_not_taken_for_that_to_the_next_request(monkeypatch):
    monkeypatch.setattr(training_link, "PATIENCE_S", 0.2)
    with linked() as (link, place):
        training = connected(link, place)
        assert link.ask({"do": "pause"}) == {"state": "late"}
        late = json.loads(training.recv_bytes())

        def answer():
            asked = json.loads(training.recv_bytes())
            for number, state in ((late["id"], "old"), (asked["id"], "new")):
                training.send_bytes(json.dumps({"state": state, "id": number}).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        assert link.ask({"do": "look"})["state"] == "new"
        thread.join()
        training.close()


def test_only_who_knows_the_secret_is_the_training_and_a_silent_stranger_keeps_nobody_out():
    with linked() as (link, place), socket.create_connection(place):
        with pytest.raises(AuthenticationError):
            Client(place, family="AF_INET", authkey=b"guessed")
        assert link.ask({"do": "look"}) == {"state": "waiting"}
        training = connected(link, place)
        with pytest.raises((OSError, EOFError)):  # it connects once
            Client(place, family="AF_INET", authkey=SECRET.encode()).recv_bytes()
        training.close()
