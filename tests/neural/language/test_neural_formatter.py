"""The canonical layout: exact output, all comments, and no change of meaning or of a second pass."""

import pytest
from tests.neural.sample_files import CNN, COMMENTS, TEXTS, network

from neural import formatted, parse


def layout(text):
    return formatted(parse(text))


@pytest.mark.parametrize("name", TEXTS)
def test_a_formatted_text_says_the_same_and_stays_as_it_is(name):
    source = parse(TEXTS[name])
    text = formatted(source)
    again = parse(text)
    assert again == source
    assert sorted(each.text for each in again.comments) == sorted(each.text for each in source.comments)
    assert formatted(again) == text


def test_a_text_in_the_canonical_layout_is_not_changed():
    assert layout(CNN) == CNN


def test_the_layout():
    text = """
    define  A( n , m = 2 ){Dense( $n*2,activation = 'relu' )}
    network N{input:(None,3)layers:[A(n=1),B{C()}*3,D(x:TRUE,y=none)@cpu]metrics:[ 'a',b ]
    optimizer:"Adam" train{epochs:5,batch_size=HPO(choice(1,2))}
    }"""
    assert (
        layout(text)
        == """\
define A(n, m=2) {
  Dense($n * 2, activation="relu")
}

network N {
  input: (None, 3)
  layers:
    A(n=1)
    B {
      C()
    } * 3
    D(x=true, y=None) @ "cpu"
  metrics: ["a", b]
  optimizer: "Adam"
  train {
    epochs: 5
    batch_size: HPO(choice(1, 2))
  }
}
"""
    )


def test_comments_stay_where_they_belong():
    assert (
        layout(COMMENTS)
        == """\
// before everything
/* of two
   lines */
define Block(n) {  # after a bracket
  Dense($n)  // after a layer
  # at the end of a block
}

network Commented {  /* after a name */
  input: (5,)  # the input
  # before the layers
  layers:  // on the line of the layers
    Block(
      # before an argument
      n=3  # after an argument
    )
    Dense(
      /* inside */
      4
    )  /* one */  # two
    ResidualConnection {  # a block
      Dense(4)
      # the end of the block
    }
  # after the layers
  loss: "mse"  # after the loss
  optimizer: Adam(
    learning_rate=0.1  # fast
    # nothing else
  )
  # inside a list
  metrics: ["mae", "mse"]
  train {  # settings
    # how long
    epochs: 3  /* few */
  }
  # the end
}  # after the network
# the end of the file
"""
    )


def test_a_long_layer_has_one_argument_a_line():
    line = f"    Dense({', '.join(f'argument_{n}={n}' for n in range(8))})"
    assert layout(network(line)).splitlines()[3:7] == [
        "    Dense(",
        "      argument_0=0,",
        "      argument_1=1,",
        "      argument_2=2,",
    ]


def test_empty_lines_are_kept_once():
    text = layout(network("\n\n    A()\n\n\n\n    B()\n    C()\n\n"))
    assert "layers:\n    A()\n\n    B()\n    C()\n\n  loss" in text


def test_quotes():
    assert 'A(\'say "hi"\', "it\'s")' in layout(network('A(\'say "hi"\', "it\'s")'))
