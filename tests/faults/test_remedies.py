"""Every remedy's code, pasted into the script that it was given for, takes the cause away."""

from __future__ import annotations

import ast
import re

import pytest
from tests.explain.stories import STORIES
from tests.families import some
from tests.faults import corpus, edits
from tests.faults.by_hand import BY_HAND
from tests.faults.edits import Script, changed
from tests.faults.pasted import NotPasted, pasted

from neuraldbg.explain import CAUSES, diagnose
from neuraldbg.nouns import VERDICTS, CodeLine, Edit

AT_ONCE = {
    "missing_zero_grad": "house_no_zero_grad",
    "param_frozen": "house_layer_frozen",
}
"""Scripts of causes whose remedy applies itself, in a second or two."""
BY_ITSELF = {
    "accumulation_unscaled": "digits_mlp_accumulates_unscaled",
    "adam_epsilon": "simclr_eps_10",
    "bad_batch": "house_one_row_in_other_units",
    "batchnorm_momentum": "teacher_momentum_1e_5",
    "batchnorm_small_batch": "teacher_batches_of_two",
    "dead_relu": "digits_mlp_dead_first_layer",
    "decay_on_norms": "gpt_decays_its_norms",
    "double_softmax": "digits_mlp_softmax_layer",
    "dropout_too_high": "house_dropout_095",
    "ema_stale": "teacher_is_the_student",
    "eval_mode_left_on": "student_in_eval_mode",
    "init_scale_wrong": "gpt_std_2",
    "loss_sign_flip": "rows_negative_of_nll",
    "lr_too_high": "vae_lr_1",
    "lr_too_low": "house_lr_1e_7",
    "momentum_too_high": "accumulate_momentum_0998",
    "output_activation_mismatch": "digits_mlp_relu_on_logits",
    "param_not_in_optimizer": "house_trunk_forgotten",
    "symmetric_init": "digits_mlp_weights_alike",
    "tied_weights_broken": "gpt_tie_by_clone",
    "vanishing_depth": "digits_mlp_deep_sigmoid",
    "weight_decay_too_high": "graph_decay_1",
    "wrong_reduction": "accumulate_sum",
}
"""The same for scripts that take longer."""
IN_WORDS = {
    "adam_second_moment_stale": "no script of the corpus has it; its edits are those of the optimizer and of clipping",
    "adversary_helped": "test_adversaries.py trains with it",
    "attention_collapse": "needs a parameter of its own in forward",
    "batch_too_small": "the loop is written anew for accumulation",
    "dataset_overwritten": "copies an item where the dataset gives it",
    "degenerate_batch": "a setting of a data loader, which the script may not have",
    "channels_interleaved": "moves an axis where the tensor is made, in the program",
    "duplicate_worker_rng": "a method of the data set",
    "frozen_norm_drift": "its script is one of the reports; the edit is that of a mode",
    "function_misused": "says what the function expects: the names of the program's tensors are not known",
    "label_noise": "says where to look: nobody knows the right labels",
    "labels_degenerate": "says where to look: nobody knows the right labels",
    "logit_drift": "needs the logits where the loss is computed",
    "mask_error": "needs the place of the attention",
    "members_alike": "says where to seed: the program makes its members by itself",
    "memory_leak": "needs profile=True; test_growth.py checks its line",
    "nonfinite_input": "stops or drops; the data has to be repaired",
    "plasticity_loss": "needs to know when the task changes",
    "rank_collapse": "a change of the architecture",
    "saturating_activation": "its scripts are ranked under other causes",
    "split_skew": "says what to compare: the steps of both splits are not seen",
    "target_misaligned": "says where to look: nobody knows the right pairs",
    "term_without_gradient": "says what the term must be made of: its formula is the program's own",
    "train_val_leak": "the split has to be made anew",
    "update_lost": "the optimizer is the program's own",
    "value_unused": "says which value is not used: where it was meant is the program's own",
    "warmup_missing": "the only script sets its learning rate at each step by itself, over that of the pasted schedule",
    "weights_overwritten": "says where to look: the code that writes to the weights is the program's own",
    "wrong_custom_backward": "checks a formula that only its author knows",
}
"""Reasons why a remedy is not tried: it cannot cure by itself, or the corpus has no script for it."""


def test_every_cause_has_a_remedy_that_is_tried_or_a_reason():
    tried = {*AT_ONCE, *BY_ITSELF, *(one.cause for one in BY_HAND)}
    assert tried | set(IN_WORDS) == {cause.id for cause in CAUSES if cause.category != "distributed"}
    assert not tried & set(IN_WORDS)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_code_and_edits_are_python(name):
    for hypothesis in diagnose(STORIES[name].fires().build()).hypotheses:
        ast.parse(hypothesis.remedy.code)
        for edit in hypothesis.remedy.edits:
            assert edit.how in ("before", "after", "arguments")
            assert edit.at in ("forward", "backward", "step", "optimizer")
            ast.parse(f"f({edit.code})" if edit.how == "arguments" else edit.code)


def watched(program: corpus.Program):
    """Return the diagnosis of a program whose steps are all read, so that the load of the machine does not matter."""
    return corpus.record(program, capture={"allowance_s": 60.0})[1]


def run(name: str, text: str, like: corpus.Program):
    """Run a text as a program like another one."""
    script = Script(f"{name}_pasted", like.task, text, like.golden, like.family)
    return watched(corpus.Program(script.name, script.run, script.task, script.golden, script.family, script.text))


def assert_cured(cause, before, after):
    assert after.run["outcome"]["kind"] == "completed", after.run["outcome"]
    assert cause not in [h.cause for h in after.hypotheses], after.summary
    assert VERDICTS.index(after.verdict) <= VERDICTS.index(before.verdict)


def paste_by_itself(cause, name):
    faulty = corpus.load_scripts()[name]
    before = watched(faulty)
    first = before.hypotheses[0]
    assert first.cause == cause
    assert_cured(cause, before, run(name, pasted(faulty.text, first.remedy.edits), faulty))


@pytest.mark.parametrize(("cause", "name"), sorted(AT_ONCE.items()))
def test_remedy_cures(cause, name):
    paste_by_itself(cause, name)


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "name"), some(sorted(BY_ITSELF.items()), 3))
def test_remedy_cures_by_itself(cause, name):
    paste_by_itself(cause, name)


@pytest.mark.slow
@pytest.mark.parametrize("one", some(BY_HAND, 3), ids=[f"{one.cause}-{one.script}" for one in BY_HAND])
def test_remedy_cures_at_its_place(one):
    faulty = corpus.load_scripts()[one.script]
    before = watched(faulty)
    code = next(h.remedy.code for h in before.hypotheses if h.cause == one.cause)
    for part in one.taken:
        assert part in code
    found = re.search(one.numbers, code) if one.numbers else None
    numbers = found.groupdict() if found is not None else {}
    assert bool(numbers) == bool(one.numbers)
    changes = []
    for old, new, *times in one.changes:
        for key, value in numbers.items():
            new = new.replace(f"{{{key}}}", value)  # noqa: PLW2901 (one group after the other)
        changes.append((old, new, *times))
    after = run(one.script, changed(one.script, one.script, faulty.text, changes), faulty)
    if "could not create a primitive descriptor" in (after.run["outcome"]["message"] or ""):
        pytest.skip("oneDNN cannot run an LSTM under autocast to bfloat16 on this processor")
    assert_cured(one.cause, before, after)


# ------------------------------------------------------------------------------------------- pasting


LOOP = """\
import torch
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(
    net.parameters(), 0.1, momentum=0.9
)
for step in range(3):
    total = net(torch.ones(1, 2)).sum()
    total.backward()
    opt.step()
"""


def at(number: int) -> CodeLine:
    return CodeLine("x.py", number)


def test_statements_are_pasted_with_the_indent_of_their_line():
    text = pasted(
        LOOP, [Edit("before", "backward", "opt.zero_grad()", at(8)), Edit("after", "step", "a = 1\nb = 2", at(9))]
    )
    assert "    opt.zero_grad()\n    total.backward()\n    opt.step()\n    a = 1\n    b = 2\n" in text


def test_arguments_are_set_in_a_call_over_several_lines():
    text = pasted(LOOP, [Edit("arguments", "optimizer", "lr=0.01, weight_decay=0.1", at(3))])
    assert "opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=0.1)\nfor" in text


def test_an_edit_without_a_line_is_refused():
    with pytest.raises(NotPasted, match="not known where"):
        pasted(LOOP, [Edit("before", "backward", "opt.zero_grad()")])
    with pytest.raises(NotPasted, match="no statement in line 40"):
        pasted(LOOP, [Edit("before", "backward", "opt.zero_grad()", at(40))])


def test_every_script_of_the_tables_exists():
    scripts = edits.every()
    assert {*AT_ONCE.values(), *BY_ITSELF.values(), *(one.script for one in BY_HAND)} <= set(scripts)
