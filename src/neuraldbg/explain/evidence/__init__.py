"""The evidence that causes weigh: readings of a record about loss, loop, data, layers and optimizer.

A cause's judge gets a ``Case``, built in three layers: ``RecordReadings`` (cached, without judgement) -> ``Symptoms``
(what went wrong) -> ``Case`` (depth profiles and update ratios). Each other file has the readings of one subject. No
file here knows a cause.

In a light step no site is read. A reading counts for the unread steps after it as well (``Case.held``, ``early``,
``unbroken``), and nothing is concluded about a step that was not read (``Origin.read``, ``Case.blind``).
``benchmarks/accuracy_thinned.py`` measures what light steps cost in accuracy. A number that has several readings is
written by one function that says which one it is: ``LossSummary.ending`` (median of the last losses),
``wording.moved`` (median over weight matrices).

- ``case.py``: the case of one run
- ``record_readings.py``: readings of the record that many causes need
- ``constant_guess.py``: what a model that knows no input would score
- ``symptom.py``: the worst symptom of a run, and its onset
- ``loss_curve.py``: levels, noise and trend of a loss
- ``loss_form.py``: the way in which a loss is computed, and the steps at which it changed
- ``second_signs.py``: signs of harm beside a training loss that rose
- ``metric_meanings.py``: the direction in which a metric should move, by its name
- ``metric_trends.py``: metrics of the program's own that do not follow the loss
- ``first_nonfinite.py``: the step and the sites of the first NaN or infinity
- ``depth_profiles.py``: weights, gradients, activations and units over depth
- ``layer_facts.py``: facts about norms, dropout and outputs
- ``inputs.py``: batches, and experiments on the models
- ``targets.py``: targets of the loss terms
- ``operation_domains.py``: the domains of operations that can overflow
- ``training_loop.py``: order, learning rate and outcome of the loop
- ``task_phases.py``: the phases of a training whose task changes
- ``optimizer_steps.py``: settings and steps of the main optimizer
- ``unfed_layers.py``: layers that no gradient ever reached
- ``graph_wiring.py``: cuts in the graph, and names that show an intention
- ``simpler_causes.py``: simpler reasons for a run to blow up
- ``wording.py``: how numbers and names are written
"""
