"""The rules of torch's functions in words: what is expected, what comes of the breach, how to mend it.

The CONTRACTS fact names rules by their ids; ``capture/contracts`` checks them.
"""

from __future__ import annotations

from typing import NamedTuple

SURE, STRONG, HINT, WEAK = 6.0, 4.0, 1.5, 0.5
"""Log-odds of a breach that no sound program makes, one that hardly any makes, one that some make on purpose, and one
that is on purpose as a rule, as a term that is switched off: alone it is not shown."""


class Rule(NamedTuple):
    """One rule in words."""

    expects: str
    """What the function expects, after "expects"."""
    comes: str
    """What comes of the breach: a clause."""
    text: str
    """The remedy, a sentence."""
    code: str
    weight: float
    """Log-odds by which a breach in all calls speaks for a fault."""


RULES: dict[str, Rule] = {
    "signs": Rule(
        "targets of 1 and -1",
        "a pair with another target has no loss, or a constant one",
        "Give 1 for a pair that belongs together and -1 for one that does not.",
        "target = 2 * target - 1  # from 0 and 1",
        SURE,
    ),
    "multi_hot": Rule(
        "the ids of each sample's classes, padded with -1",
        "a row of zeros and ones is read as the ids of the classes 0 and 1",
        "Give ids, or take a loss for zeros and ones.",
        "loss = F.multilabel_soft_margin_loss(scores, target.float())",
        SURE,
    ),
    "same_pair": Rule(
        "another sample in each of its places",
        "two equal vectors have the distance 0, and say nothing of how samples lie",
        "Draw the positive from the other samples of the anchor's class, and the negative from another class.",
        "loss = F.triplet_margin_loss(net(anchor), net(positive), net(negative))",
        STRONG,
    ),
    "log_probabilities": Rule(
        "log-probabilities over the classes, in the last axis",
        "the loss counts with probabilities that are none",
        "Take log_softmax over the classes first.",
        "log_probs = scores.log_softmax(dim=-1)  # (T, N, C)",
        SURE,
    ),
    "target_longer": Rule(
        "targets no longer than the input of their sample",
        "such a sample has an infinite loss, or none with zero_infinity=True",
        "Compare input_lengths with what the network leaves of the time axis, and target_lengths with the targets.",
        "input_lengths = torch.full((n,), log_probs.shape[0])",
        STRONG,
    ),
    "blank_in_targets": Rule(
        "targets without the blank",
        "the blank stands for nothing, so such a target cannot be read out",
        "Count the classes from 1, with 0 for the blank, or give the blank an id of its own.",
        "loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=n_classes)",
        SURE,
    ),
    "negative_counts": Rule(
        "targets that are counts, 0 and above",
        "a Poisson distribution gives a negative number no probability",
        "Give counts as they are, without subtracting their mean.",
        "loss = F.poisson_nll_loss(log_rate, counts)",
        STRONG,
    ),
    "log_target": Rule(
        "targets that are probabilities, unless log_target is True",
        "the logarithm of a negative number is taken",
        "Give probabilities, or say that targets are logarithms.",
        'loss = F.kl_div(log_probs, log_targets, reduction="batchmean", log_target=True)',
        SURE,
    ),
    "no_probabilities": Rule(
        "targets that are probabilities, from 0 to 1",
        "raw scores are no distribution, and the divergence from them is no distance",
        "Take the softmax of the scores, with the same temperature as the prediction.",
        'loss = F.kl_div(scores.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")',
        SURE,
    ),
    "compared_with_itself": Rule(
        "two different things to compare",
        "the loss is 0 whatever the model does",
        "Look at where both come from: one may be a view of the other, or written over it.",
        "target = batch.clone()  # before anything is changed in place",
        SURE,
    ),
    "plain_target": Rule(
        "targets that are logarithms, since log_target is True",
        "probabilities are taken for logarithms",
        "Give logarithms, or leave log_target out.",
        'loss = F.kl_div(log_probs, targets, reduction="batchmean")',
        SURE,
    ),
    "one_hot_as_ids": Rule(
        "the id of a row for each token",
        "each zero and each one of a one-hot vector is looked up by itself",
        "Give the position of the one.",
        "ids = one_hot.argmax(dim=-1)",
        SURE,
    ),
    "mask_as_ids": Rule(
        "the id of a row for each token",
        "all other rows of the table are never looked up",
        "Give the ids themselves: a comparison or a mask gives 0 and 1.",
        "print(ids.unique())  # before the embedding",
        STRONG,
    ),
    "grid_units": Rule(
        "coordinates from -1 to 1",
        "what lies outside is padding, and has no gradient",
        "Scale coordinates of pixels to -1 for the first and 1 for the last.",
        "grid = 2 * pixels / (torch.tensor([width, height]) - 1) - 1",
        STRONG,
    ),
    "grid_from_nought": Rule(
        "coordinates from -1 to 1",
        "a quarter of the image is sampled",
        "Scale coordinates from 0 to 1 once more.",
        "grid = 2 * grid - 1",
        STRONG,
    ),
    "ids_between": Rule(
        "numbers between which there are others",
        "between the ids of two classes lie the ids of other classes",
        "Scale a map of class ids with the nearest neighbour.",
        'labels = F.interpolate(labels, size, mode="nearest")',
        STRONG,
    ),
    "one_value": Rule(
        "more than one value to normalise",
        "of one value nothing is left but the bias, whatever goes in",
        "Normalise over the features, or leave the normalisation out.",
        "nn.LayerNorm(features)  # the size of the last axis",
        SURE,
    ),
    "one_element": Rule(
        "vectors of more than one element",
        "of one element nothing is left but its sign, and no gradient",
        "Name the axis in which the features lie.",
        "F.normalize(x, dim=-1)",
        SURE,
    ),
    "one_score": Rule(
        "more than one score to choose from",
        "the result is 1 whatever the score, and has no gradient",
        "Name the axis in which the scores lie.",
        "weights = scores.softmax(dim=-1)",
        STRONG,
    ),
    "added_mask": Rule(
        "a mask of bools, or of numbers to add: 0 to keep, minus infinity to leave out",
        "a mask of 0 and 1 raises some scores by 1 and leaves nothing out",
        "Give a mask of bools.",
        "mask = mask.bool()",
        SURE,
    ),
    "row_without_key": Rule(
        "a mask that leaves each query at least one key: True keeps a key in scaled_dot_product_attention",
        "such a query gets nothing, or NaN",
        "See which value keeps a key: True here, and False in the masks of nn.MultiheadAttention.",
        "mask = ~mask",
        STRONG,
    ),
    "bounds_swapped": Rule(
        "a lower bound below the upper one",
        "everything becomes the upper bound, and gets no gradient",
        "Swap the bounds.",
        "x = x.clamp(min=low, max=high)",
        SURE,
    ),
    "scores_times_mask": Rule(
        "minus infinity for what is to be left out",
        "a score of 0 is not left out: it gets the weight of exp(0)",
        "Fill what is masked with minus infinity before the softmax.",
        'scores = scores.masked_fill(~mask.bool(), float("-inf"))',
        STRONG,
    ),
    "mask_as_index": Rule(
        "a mask of bools, or the numbers of elements",
        "zeros and ones choose the first two elements, again and again",
        "Make the mask one of bools.",
        "x[mask.bool()]",
        SURE,
    ),
    "probabilities_as_logits": Rule(
        "scores without bounds, or log-probabilities, as logits",
        "a softmax or sigmoid is taken twice, so that no outcome can become nearly certain",
        "Give the scores as logits, or the probabilities as probs.",
        "torch.distributions.Categorical(logits=scores)  # or probs=scores.softmax(-1)",
        SURE,
    ),
    "drawn_without_gradient": Rule(
        "parameters that need no gradient through what is drawn",
        "nothing of the loss reaches them by it, and no log-probability of what was drawn does",
        "Draw with rsample, which lets the gradient through.",
        "z = law.rsample()  # not law.sample()",
        STRONG,
    ),
    "outer_value": Rule(
        "one value for each distribution",
        "each value is compared with each distribution, not with its own",
        "Bring both to one shape.",
        "log_prob = law.log_prob(value.view_as(law.mean))",
        SURE,
    ),
    "nothing_loaded": Rule(
        "the names of the model's own tensors",
        "with strict=False what does not fit is left out without an error, and the model keeps its random weights",
        "Look at what load_state_dict returns: missing_keys and unexpected_keys; mend the names.",
        "told = model.load_state_dict(state, strict=False)\nprint(told.missing_keys, told.unexpected_keys)",
        SURE,
    ),
    "own_weights": Rule(
        "a copy of the weights as they were",
        "state_dict() returns the weights themselves, which training goes on changing: they are written over "
        "themselves, and nothing comes back",
        "Copy the state when it is taken.",
        "best = copy.deepcopy(model.state_dict())",
        SURE,
    ),
    "all_clamped": Rule(
        "values that lie between its bounds, but for a few",
        "a value beyond a bound has no gradient, so that nothing before it learns",
        "Compare the bounds with what the values are: an angle goes from 0 to pi, a cosine from -1 to 1.",
        "theta = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))",
        STRONG,
    ),
    "same_views": Rule(
        "two views that differ, to compare them",
        "a pair that belongs together is equal whatever the network does, and it learns no likeness",
        "Give each pass its own view of the samples.",
        "z1, z2 = net(augment(x)), net(augment(x))",
        STRONG,
    ),
    "bounded_scores": Rule(
        "scores that can grow as large as the loss asks for",
        "a cosine lies between -1 and 1, and times such a factor the softmax stays nearly even, however well the "
        "vectors lie: the loss cannot fall far, and gradients stay small",
        "Divide the cosines by a temperature below 1, such as 0.1, and do not multiply by it; or learn the factor.",
        "scores = F.normalize(a) @ F.normalize(b).T / 0.1",
        STRONG,
    ),
    "view_moves_axis": Rule(
        "axes that stay in their order",
        "a view keeps the order of the numbers in memory, so numbers of different samples or positions are mixed",
        "Move an axis with transpose or permute, and split it with view before that.",
        "x = x.transpose(0, 1)  # or x.view(batch, length, heads, -1).transpose(1, 2)",
        STRONG,
    ),
    "without_graph": Rule(
        "something that is computed from weights",
        "a term of the loss made so is a constant, and teaches nothing",
        "Look at which tensors it compares: the output of the model that is trained has to be one of them.",
        "assert term.requires_grad",
        WEAK,
    ),
    "adds_constant": Rule(
        "summands of the loss that have a graph",
        "a summand without one teaches nothing",
        "Look at each term of the loss: one of them does not depend on the weights.",
        "assert term.requires_grad",
        0.0,
    ),
    "times_nought": Rule(
        "a factor that leaves something",
        "what is multiplied by it has no effect on the loss, and gets no gradient",
        "Look at the weight of the term, or at the temperature or coefficient that became 0.",
        "print(beta)  # or whatever the loss is multiplied by",
        WEAK,
    ),
    "rate_as_log": Rule(
        "the logarithm of the rate, unless log_input is False",
        "a rate is taken for its logarithm, so that none below 1 can be predicted",
        "Say that the input is a rate, or leave the activation out.",
        "loss = F.poisson_nll_loss(rate, counts, log_input=False)",
        STRONG,
    ),
    "weights_of_classes": Rule(
        "a weight for each sample of the dataset",
        "only the first samples are ever drawn, as many as there are weights",
        "Give each sample the weight of its class.",
        "sampler = WeightedRandomSampler(class_weights[labels], num_samples=len(labels))",
        SURE,
    ),
    "masked_has_weight": Rule(
        "scores so low where a mask is that nothing is left of them: minus infinity",
        "what is masked keeps its weight: 1e-9 or 0 is a score like others, and -1e9 is none",
        "Fill what is masked with minus infinity.",
        'scores = scores.masked_fill(mask, float("-inf"))',
        STRONG,
    ),
    "causal_of_two_lengths": Rule(
        "as many keys as queries where is_causal is True",
        "torch lays the triangle in the upper left corner, so a query sees the first keys, and not those before it",
        "Give a mask whose triangle ends in the lower right corner.",
        "mask = torch.ones(L, S, dtype=torch.bool).tril(S - L)",
        STRONG,
    ),
    "past_hidden": Rule(
        "a mask that hides what comes later",
        "each position sees what it has to predict, and nothing of what came before",
        "See which value hides a key: True in masked_fill and nn.MultiheadAttention, False in "
        "scaled_dot_product_attention.",
        "mask = ~mask  # or torch.tril in place of torch.triu",
        HINT,
    ),
    "heads_as_length": Rule(
        "(batch, heads, length, width), with the positions on the axis before the last",
        "heads attend to heads within each position, and no position sees another",
        "Move the heads in front of the positions.",
        "q = q.view(batch, length, heads, width).transpose(1, 2)",
        HINT,
    ),
    "softmax_over_queries": Rule(
        "weights that sum to 1 over what they average",
        "a query gets a sum of any size, and keys share one unit among all queries",
        "Take the softmax over the keys, the last axis.",
        "weights = scores.softmax(dim=-1)",
        STRONG,
    ),
    "spread_of_one": Rule(
        "more than one value along its axis",
        "the spread of one value, divided by n - 1, is NaN",
        "Name the axis in which the values lie.",
        "x.std(dim=0)",
        STRONG,
    ),
    "less_itself": Rule(
        "two different things",
        "the difference is 0 whatever the model does, and has no gradient",
        "Look at both names: one of them was meant to be something else.",
        "difference = prediction - target",
        STRONG,
    ),
    "outer_product": Rule(
        "one number for each number",
        "each is combined with each, not with its own",
        "Bring both to one shape.",
        "loss = (a * b.squeeze(-1)).mean()",
        STRONG,
    ),
}
"""By id."""
RULES["view_moves_axis_perhaps"] = RULES["view_moves_axis"]._replace(
    comes="a view keeps the order of the numbers in memory: either neighbours are joined on purpose, or samples or "
    "positions are mixed",
    weight=HINT,
)
