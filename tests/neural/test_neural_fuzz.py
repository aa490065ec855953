"""Mutated files: each gives a plan or a clean NeuralError, and none takes a second."""

import random
import time

import pytest
from tests.families import some
from tests.neural.sample_files import TEXTS

from neural import NeuralError, checked, formatted, parse
from neural.language import reader

PIECES = (
    "{", "}", "(", ")", "[", "]", ",", ":", "=", "*", "@", "$x", "$", "HPO(choice(", "1e999", "-1", "0", "1e-400",
    "999999999999", "* 1000000000", '"', "'", "#", "//", "/*", "*/", "None", "true", "Dense", "Add()", "define X {",
    "network", "layers:", "input:", "é", "\x00", "\n", ";", "9" * 50, ".5", "_", "loss", "train {", "block: {",
    "ResidualConnection {", "Embedding(10, 10)", "name=", "(" * 50, "0.0", "TimeDistributed(", "Step(width=4)", "\r",
    "\t",
)  # fmt: skip
SECOND = 1.0


def mutated(text, chance):
    for _ in range(chance.randint(1, 5)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.randint(1, 30))
        match chance.randrange(6):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + chance.choice(PIECES) + text[start:]
            case 2:
                text = text[:start] + chance.choice(PIECES) + text[end:]
            case 3:
                other = chance.randrange(len(text) + 1)
                text = text[:start] + text[other : other + chance.randint(1, 150)] + text[start:]
            case 4:
                words = text.split(" ")
                one, two = chance.randrange(len(words)), chance.randrange(len(words))
                words[one], words[two] = words[two], words[one]
                text = " ".join(words)
            case _:
                text = text[:start]
    return text


def outcome(text):
    """Check all networks of a text; if it can be read, formatting must keep what it says."""
    try:
        source = parse(text)
        shown = formatted(source)
        again = parse(shown)
        assert again == source, text
        assert sorted(each.text for each in again.comments) == sorted(each.text for each in source.comments), text
        assert formatted(again) == shown, text
        for each in source.networks[:5]:
            checked(source, each.name).to_dict()
    except NeuralError as error:
        assert str(error)  # noqa: PT017 (what matters is that it can be shown)
        return "error"
    return "plan"


def fuzzed(seed, count):
    chance = random.Random(seed)
    reader.parse("")  # the tables of the parser are made once
    outcomes = {"plan": 0, "error": 0}
    for _ in range(count):
        text = mutated(chance.choice(list(TEXTS.values())), chance)
        began = time.process_time()
        outcomes[outcome(text)] += 1
        assert time.process_time() - began < SECOND, text
    return outcomes


def test_six_hundred_mutated_files():
    outcomes = fuzzed(1, 600)
    assert min(outcomes.values()) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(2, 7), 5))
def test_five_thousand_mutated_files(seed):
    fuzzed(seed, 1000)
