"""Texts of the language, one for each construct: all are read, and those in `MODELS` describe a model."""

from __future__ import annotations

CNN = """\
# A small classifier of digits.
network Digits {
  input: (28, 28, 1)  # rows, columns, channels

  layers:
    Conv2D(filters=8, kernel_size=(3, 3), activation="relu")
    MaxPooling2D((2, 2))
    Flatten()
    Dense(32, "relu")
    Dropout(0.25)
    Output(10, "softmax")

  loss: "sparse_categorical_crossentropy"
  optimizer: Adam(learning_rate=0.002)
  metrics: ["accuracy"]

  train {
    epochs: 3
    batch_size: 64
  }
}
"""

ANY_ORDER = """
network Backwards {
  execution { device: "cpu" }
  train { batch_size: 8, epochs: 2; validation_split: 0.1 }
  optimizer: "SGD(learning_rate=1e-2, momentum=.9)"
  loss: mse
  layers:
    Dense(16, 'tanh'),
    Dense(1);
  metrics: [mae, "mse"]
  input: (None, 4)
}
"""

SEVERAL_NETWORKS = """
network Small { input: (3) layers: Dense(1) loss: "mse" }
network Large { input: (3) layers: Dense(64, "relu") Dense(1) loss: "mse" }
network Small { input: (4,) layers: Dense(2) loss: "mse" }
"""

MACROS = """
define Step(width, rate=0.1) {
  Dense(units=$width * 2, activation="relu")
  Dropout($rate)
  Dense($width/2 + 1)
}
define Twice(width) {
  Step(width=$width)
  Step($width, rate=0.5) * 2
}
network Stacked {
  input: (10,)
  layers:
    Twice(8)
    Step(width=4)
    Output(2)
}
"""

SHADOWED = """
define Dense(units) {
  Dense(units=$units, use_bias=false)
  BatchNormalization()
}
network Shadow { input: (6) layers: dense(4) Output(2) }
"""

SEARCHES = """
network Searched {
  input: (20,)
  layers:
    Dense(HPO(choice(16, 32)), activation=HPO(categorical("relu", "tanh")))
    Dropout(rate=HPO(range(0.2, 0.6, step=0.1)))
    Dense(HPO(range(10, 20)))
    HPO(choice(Dense(64), Dropout(0.5)))
    Output(3)
  optimizer: Adam(learning_rate=HPO(log_range(1e-4, 1e-2)))
  train { epochs: HPO(choice(5, 10)) batch_size: [16, 32] search_method: "bayesian" }
}
"""

COMMENTS = """\
// before everything
/* of two
   lines */
define Block(n) { # after a bracket
  Dense($n) // after a layer
  # at the end of a block
}

network Commented { /* after a name */
  input: (5) # the input
  # before the layers
  layers: // on the line of the layers
    Block(
      # before an argument
      n=3  # after an argument
    )
    Dense(/* inside */ 4)  /* one */ # two
    ResidualConnection { # a block
      Dense(4)
      # the end of the block
    }
    # after the layers
  loss: "mse" # after the loss
  optimizer: Adam(
    learning_rate=0.1, # fast
    # nothing else
  )
  metrics: ["mae", # inside a list
    "mse"]
  train { # settings
    # how long
    epochs: 3 /* few */
  }
  # the end
} # after the network
# the end of the file
"""

NAMED_INPUTS = """
network Towers {
  input: {
    words: (12,)
    picture: (8, 8, 3)
  }
  layers:
    words: { Embedding(50, 16) GlobalAveragePooling1D() }
    picture: { Conv2D(4, 3, name="edges") Flatten() Dense(16) }
    Concatenate()
    Output(1, "sigmoid")
}
"""

LIST_OF_LAYERS = """
network Listed {
  input: shape(1, 16, 16)
  layers: [
    Conv2D(4, 3),
    Flatten(),
    Output(units=2,)
  ]
}
"""

RESIDUAL = """
network Residual {
  input: (16, 16, 4)
  layers:
    ResidualConnection {
      Conv2D(4, 3, padding="same", activation="relu")
      Conv2D(4, 3, padding="same")
    } * 2
    ResidualConnection {
      Conv2D(8, 3, strides=2, padding="same")
      Conv2D(8, 3, padding="same")
      Conv2D(8, 1, strides=2)
    }
    GlobalAveragePooling2D()
    Output(2)
}
"""

ATTENTION = """
define Encoder(width) {
  MultiHeadAttention(num_heads=2, key_dim=4)
  Add()
  LayerNormalization()
  Dense($width, "gelu")
  Dense(8)
  Add()
  LayerNormalization()
}
network Reader {
  input: (20,)
  layers:
    Embedding(input_dim=100, output_dim=8, mask_zero=True)
    Encoder(width=16) * 2
    TransformerEncoder(num_heads=2, ff_dim=16) @ "cuda:0"
    Bidirectional(LSTM(5, return_sequences=true))
    TimeDistributed(Dense(3))
    GRU(4)
    Output(2)
  lr_schedule: StepDecay(initial_lr=0.1, decay_steps=3, decay_rate=0.5)
}
"""

SCHEDULED = """
network Scheduled {
  input: (4)
  layers: Dense(2, "linear")
  loss: huber(delta=0.5)
  optimizer: RMSprop(learning_rate=ExponentialDecay(0.1, HPO(choice(100, 200)), 0.9), rho=0.8)
  hpo: { trials: 5 }
  train { gradient_clip: 1.0 early_stopping: true @ "gpu" }
}
"""

RESEARCH = """
research Findings {
  metrics { accuracy: 0.91 loss: 0.3 }
  references { paper: "https://example.org/a//b#c" }
}
"""

MODELS = {
    "any_order": ANY_ORDER,
    "attention": ATTENTION,
    "cnn": CNN,
    "comments": COMMENTS,
    "list_of_layers": LIST_OF_LAYERS,
    "macros": MACROS,
    "named_inputs": NAMED_INPUTS,
    "residual": RESIDUAL,
    "scheduled": SCHEDULED,
    "searches": SEARCHES,
    "several_networks": SEVERAL_NETWORKS,
    "shadowed": SHADOWED,
}
TEXTS = {**MODELS, "research": RESEARCH, "empty": "", "only_a_comment": "# nothing\n"}


def network(layers: str, shape: str = "(4,)", rest: str = 'loss: "mse"') -> str:
    """Return a network of some layers, which begin in line 4."""
    return f"network Model {{\n  input: {shape}\n  layers:\n{layers}\n  {rest}\n}}\n"
