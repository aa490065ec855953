"""Write docs/accuracy.md and its reliability diagram: graded answers enter, text leaves."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import accuracy_baselines as baselines
from accuracy_answers import Answer, share
from accuracy_fit import FIT_TASKS

from neuraldbg.explain import CAUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.faults.corpus import Program

BINS = 10
INTRODUCTION = """
A fault is right when the first hypothesis names a true cause with a confidence of at least 0.5; its layer where one is
guilty; its first step within two. Two answers count for one fault only where the cause's page says that they cannot be
told apart. On a healthy training any hypothesis at all is an alarm, and so is a verdict worse than `healthy`
(`inconclusive` is accepted of a few that are very short or very noisy). *Top-3* asks for a true cause among the first
three hypotheses, however sure; where it equals top-1, what was missed was not even mentioned. *Both of two* counts
trainings with two faults of which both were named. *Sure of unclear* counts failures, and tasks that look like one, of
no known cause that got a confident one. *ECE* is the expected calibration error: the mean gap between what was claimed
and what was right.

The numbers that turn evidence into confidence ([calibration.json](../src/neuraldbg/explain/verdict/calibration.json))
are fitted on the tasks {tasks}, without their last seed. All other tasks are *held out* of the fit, and of nothing
else: the corpus stood beside the people who wrote the causes while they worked. Faults of strangers are harder. Of
those that were rebuilt from public reports by somebody who had not seen the rules, [Limits](limits.md) says
how many were right at first sight: `python benchmarks/reports.py` runs them.
"""
WEAK = 0.8
"""Share of right answers below which a cause is listed among the weakest."""
STRANGERS = """
Faults that authors who knew neither the rules nor the causes rebuilt from public threads, each of another field, with
the truth written before the tool ran. The first run of each set counts; only then were its misses studied. (The four
older sets are in [corpus](../corpus/README.md), and [Limits](limits.md) has their first runs.)

| round | faults | first cause right | detected | confident and wrong | alarms on sound programs and mended twins |
|---|---|---|---|---|---|
| 1, 2026-11-28, 20 fields | 20 | 8/20 (40%) | 12/20 (60%) | 3/20 (15%) | 6/28 (21%) |
| 2, 2026-11-28, 40 fields, two authors | 40 | 13/40 (32%) | 18/40 (45%) | 3/40 (8%) | 3/55 (5%) |
| 3, 2026-11-28, 40 fields, two authors | 40 | 15/40 (38%) | 20/40 (50%) | 2/40 (5%) | 4/55 (7%) |

Round 1 was right about a loss of all pairs (survival analysis), an optimizer of old copies (meta learning), a softmax
of one score (mixture of experts), two factors at zero (LoRA), an id that is padding and an item (recommender),
evaluation mode left on (segmentation), a schedule in batches that is stepped by epochs, labels that are shifted twice
(language model). It called healthy: the same view twice (contrastive), a sigmoid in the loss alone (detection), a
group that the optimizer never got (tagging), a gradient that is not reversed (domain adaptation), a generator's step
on a detached picture (GAN), a teacher compared with itself (distillation), mixed derivatives (PINN), a temperature of
0 (DPO). It was wrong about a target that ignores the end of an episode (DQN: targets not normalised), weights rounded
after each step (low-bit training: dead units) and a density that begins at zero (NeRF: the product behind it), and
named no cause for best weights that were not copied (imputation). Alarms: a curriculum whose loss jumps with each
length, a model that returns its mean loss, and of the mended twins a Cox loss that does not fall in training, a
reconstruction of the input's own tokens (tagging), a DQN whose targets grow with it, and a series that is learnt to
4e-7 and left again. Mended since, by rules that hold for any program: the first two alarms, the confident answers
about the DQN, and the answers about tagging, distillation and DPO; before round 2 also those about the two equal views,
the generator's step, the best weights and the DQN, whose twin is healthy.

Round 2 ran on commit 2f13fdce. All but one of its faults are silent: the run ends, and the loss falls. Right: a
logarithm of a critic's score (GAN; it quoted other lines), targets that are not shifted (image tokens), two schedules
by epochs that are stepped by batches (table, super-resolution), two plain lists of layers (text, implicit image), two
views for a transpose (point clouds, video), arguments of a binary cross entropy in the wrong order (VAE), data in the
order of their classes (images), a policy's loss made a number (actor-critic), a Dice of thresholded masks
(segmentation), best weights that were not copied (affinity). Wrong and sure: an inverted mask of a written-out
attention (vanishing gradients), a score of the wrong sign (a bias that gets no gradient, by nature), an optimizer of an
old network (a loss that is cut off; the right answer stood second). Not named: a federated training without its
buffers, angles clamped to (-1, 1). Called healthy: what is computed as meant and means something else, as a Fisher
information of mean gradients, a mixture that is summed, a Dice over all classes, a flow whose inverse is another, a
centre at zero, a likelihood that is not scaled, a value with the sign of the other player, a pinball with its sign
turned, a divergence summed over too much, embeddings that are not normalised; what happens to the data before they are
tensors: flipped joints, noise and boxes written in place, a mask that misses values of 1e-6, one list in all places of
a memory; copies: two averages of weights, an average without buffers, a codebook written to another name; an
evaluation by up-sampled densities, a cross-validation of one model; padding that is the end; and a critic whose target
has one axis more. Alarms: the federated training (its rounds of 15 steps), a high rate that works (matrix
factorisation), the mended score. Mended since, and not counted: the three alarms, the inverted mask, the critic's
target, the angles, the old network (17/40).

Round 3 ran on the code of 2026-11-28, 18:33, in 40 fields that no round had before. Right: a state that is carried with
its graph (nowcasting, spiking nets), clipping after the step (hydrology), a square root of zero distances (molecules,
re-identification), an inverted padding mask (proteins), weights that begin too large (materials), dropout that stays on
(EEG), a graph cut by numpy (kinematics), best weights that were not copied (maintenance), a view in place of a
transpose (question answering), lengths that are not used (emotion), inputs as they were measured (prices), a schedule
by epochs stepped by batches (birds), an optimizer of an earlier model (active learning). Wrong and sure: generated
weights wrapped as parameters (an optimizer of another model; the right answer stood second), and a sampler with a
weight for each class (targets that are all the same, as they were). Seen without a cause: masks written into the data
(keywords), a permutation for a whole batch (separation), a logarithm of zero in the targets (speech; it named the power
behind it). Called healthy: encoders in a plain list (robots: their name was taken for a purpose), a rate where its
logarithm is meant (single cells), a factor that is a learning rate (turbulence), the blank of CTC among the labels
(meters, OCR), the sampler again (land cover), a scaler fitted anew (power), sensors and times mixed before the model
(traffic), axes of a grid exchanged (registration), times of 1.7e9 in 32 bits (battery, sessions), no causal mask in a
decoder (translation), a likelihood that is minimised (CRF), captions and images sorted apart, a value for the wrong
player (boards), flips that leave left and right (keypoints), evaluation mode forgotten (speakers), two orders of nodes
(graphs), a margin with its sign turned (knowledge graphs), wide embeddings (clicks). Alarms: a curriculum whose noise
jumps (tracking), a sum of losses that falls below zero (several tasks), and of the mended twins a network of spikes
whose fresh weights never reach the threshold, and a template of which a hypernetwork takes the shapes alone. Mended
since, and not counted: the encoders, the rate, the factor, the blank, the sampler, masks that are written in place
(then 23/40), the second alarm and the third.

### Bugs on which other tools were measured

Rebuilt for a CPU with made data, by a person who had not read the rules, and graded strictly: *right* is a first cause
that names the fault. The programs are small, and half of them leave no trace in one run; DEFault++ compares a faulty
version with a mended one, TrainCheck infers invariants from other runs. What their authors published was measured on
the original programs.

| bugs of | could be run here | first cause right | near, or a later cause | flagged | published |
|---|---|---|---|---|---|
| TrainCheck, 18 detected ones | 13 | 1 | 1 | 4, 2 of them for another cause | 18 of 20 detected, 10 root causes |
| DEFault++, 11 of transformers | 8 | 0 | 0 | 1 | 8 of 11 detected, 4 root causes |
| DEFault, 52 in Keras, ported | 27 | 9 | 5 | 16 | category: DEFault 21, DeepFD 16, UMLAUT 11, AutoTrainer 6 |

Of TrainCheck's and DEFault++'s bugs most are of several processes, of libraries, or of weights that were loaded
wrongly: ranks that drift, a cache that rolls too early, a mask of other layers. A sound `nn.Transformer` whose batch is
as large as a head was called suspect on the way, at 58%; since then such a hint is not credible alone.
"""
BASELINES = """
On the held-out tasks, from the same records. The baselines name symptoms, not causes: each symptom is mapped to every
cause that its documentation could send a person to (`POINTS_TO` in
[accuracy_baselines.py](../benchmarks/accuracy_baselines.py)), and a baseline is right when the true cause is anywhere
among them. *Picked at random* is how often a person who picks one of those causes is right.
"""
DEFAULTS = """
Thresholds are those of Neural Observer: a layer's gradient norm above 100, a loss above 3 times its moving average, NaN
or infinity. Per-symptom rules are SageMaker Debugger's with their defaults, each step looked at:
"""
REMARK = """
`LossNotDecreasing` fires on any noisy loss by its default of 0%, hence the row without it. Mean absolute gradients are
taken from the recorded root mean squares, times the square root of 2/pi.
"""


@dataclass(frozen=True)
class Bin:
    """Hypotheses whose confidence lies in one tenth."""

    count: int
    claimed: float
    """Mean confidence."""
    right: float
    """Share that is true of its run."""


def reliability(answers: Iterable[Answer]) -> list[Bin]:
    """Sort every hypothesis that was said by its confidence; a run's tolerated ones are left out."""
    pairs = [
        (said.confidence, said.cause in one.program.golden.every)
        for one in answers
        for said in one.said
        if said.cause not in one.program.golden.tolerated
    ]
    found = []
    for k in range(BINS):
        mine = [pair for pair in pairs if min(BINS - 1, int(pair[0] * BINS)) == k]
        if mine:
            found.append(Bin(len(mine), sum(p for p, _ in mine) / len(mine), sum(t for _, t in mine) / len(mine)))
    return found


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean gap between claimed and right, by count (Naeini et al. 2015)."""
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.claimed - b.right) for b in bins) / total if total else float("nan")


def diagram(bins: Sequence[Bin], title: str) -> str:
    """Draw the reliability diagram as SVG: claimed against right, a circle's area for the count."""
    side, edge = 320, 44
    span = side - 2 * edge

    def x(value: float) -> float:
        return edge + span * value

    def y(value: float) -> float:
        return side - edge - span * value

    size = f'width="{side}" height="{side}"'
    turn = f'transform="rotate(-90 14 {side / 2})"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{side}" height="{side}" fill="white"/>',
        f'<text x="{side / 2}" y="20" text-anchor="middle">{title}</text>',
        f'<rect x="{edge}" y="{edge}" width="{span}" height="{span}" fill="none" stroke="#888"/>',
        f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(1)}" y2="{y(1)}" stroke="#888" stroke-dasharray="4 3"/>',
        f'<text x="{side / 2}" y="{side - 10}" text-anchor="middle">confidence that was claimed</text>',
        f'<text x="14" y="{side / 2}" text-anchor="middle" {turn}>share that was right</text>',
    ]
    for value in (0.0, 0.5, 1.0):
        parts += [
            f'<text x="{x(value)}" y="{side - edge + 14}" text-anchor="middle">{value:g}</text>',
            f'<text x="{edge - 6}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>',
        ]
    most = max((b.count for b in bins), default=1)
    for one in bins:
        radius = 3 + 9 * (one.count / most) ** 0.5
        parts.append(
            f'<circle cx="{x(one.claimed):.1f}" cy="{y(one.right):.1f}" r="{radius:.1f}" fill="#2a6f97" opacity="0.7">'
            f"<title>{one.count} hypotheses: claimed {one.claimed:.2f}, right {one.right:.2f}</title></circle>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Write a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]


def parts_of(answers: Sequence[Answer], seeds: int) -> list[tuple[str, list[Answer]]]:
    """Return the parts that are scored apart, by name."""
    last = seeds - 1
    return [
        ("all", list(answers)),
        ("fitted (their tasks and seeds)", [a for a in answers if a.fitted and (a.seed != last or seeds == 1)]),
        ("**held out: other tasks**", [a for a in answers if not a.fitted]),
        ("held out: other seed of fitted tasks", [a for a in answers if a.fitted and a.seed == last and seeds > 1]),
    ]


HEAD = (
    "",
    "faults",
    "top-1 cause",
    "top-3",
    "layer",
    "step",
    "verdict",
    "both of two",
    "alarms",
    "sure of unclear",
    "ECE",
)


def scores(label: str, mine: Sequence[Answer]) -> list[str]:
    """Return one row of the table of scores."""
    faults = [a.grade for a in mine if a.faulty]
    healthy = [a for a in mine if a.program.golden.healthy]
    unclear = [a for a in mine if a.program.golden.unclear]
    return [
        label,
        str(len(faults)),
        share(g.cause for g in faults),
        share(g.top3 for g in faults),
        share(g.layer for g in faults),
        share(g.step for g in faults),
        share(g.verdict for g in faults),
        share(g.also for g in faults),
        share(a.alarm for a in healthy),
        share(not a.grade.cause for a in unclear),
        f"{calibration_error(reliability(mine)):.3f}",
    ]


def grouped(answers: Sequence[Answer], key: Callable[[Answer], str]) -> list[list[str]]:
    """Score faults by a key."""
    rows = []
    for name in sorted({key(a) for a in answers if a.faulty}):
        mine = [a.grade for a in answers if a.faulty and key(a) == name]
        rows.append(
            [
                name,
                share(g.cause for g in mine),
                share(g.top3 for g in mine),
                share(g.layer for g in mine),
                share(g.step for g in mine),
            ]
        )
    return rows


def confusions(answers: Sequence[Answer]) -> list[tuple[str, str, int]]:
    """Return golden cause, what was said instead and how often, most frequent first."""
    counts = Counter(
        (
            a.program.golden.cause[0],
            (a.said[0].cause if a.said[0].confidence >= 0.5 else f"unsure ({a.said[0].cause})")
            if a.said
            else f"nothing ({a.verdict})",
        )
        for a in answers
        if a.faulty and not a.grade.cause
    )
    return sorted(((g, s, n) for (g, s), n in counts.items()), key=lambda row: (-row[2], row))


BASELINE_HEAD = (
    "",
    "fires on a fault",
    "true cause among those pointed to",
    "causes pointed to",
    "picked at random, or named first",
    "alarms on healthy",
)
GROUP_HEAD = ("", "top-1", "top-3", "layer", "step")


def baseline_rows(answers: Sequence[Answer]) -> list[list[str]]:
    """Score the two baselines and the diagnosis side by side, on the part that is held out."""
    judged: tuple[tuple[str, Callable[[Answer], frozenset[str]]], ...] = (
        ("thresholds on gradient norms and losses", lambda a: a.thresholds),
        ("per-symptom rules", lambda a: a.rules),
        ("per-symptom rules without LossNotDecreasing", lambda a: a.rules - {"LossNotDecreasing"}),
    )
    faults = [a for a in answers if a.faulty]
    healthy = [a for a in answers if a.program.golden.healthy]
    rows = []
    for name, symptoms in judged:
        pointed = [(baselines.causes(symptoms(a)), a.program.golden.every) for a in faults]
        hit = [bool(named & set(true)) for named, true in pointed]
        sizes = [len(named) for named, _ in pointed if named]
        chances = [len(named & set(true)) / len(named) for named, true in pointed if named]
        rows.append([
            name,
            share(bool(symptoms(a)) for a in faults),
            share(hit),
            f"{sum(sizes) / len(sizes):.1f}" if sizes else "-",
            f"{sum(chances) / max(1, len(pointed)):.0%}",
            share(bool(symptoms(a)) for a in healthy),
        ])  # fmt: skip
    rows.append([
        "**NeuralDBG**",
        share(a.verdict in {"failing", "suspect"} for a in faults),
        share(a.grade.top3 for a in faults),
        "at most 3",
        share(a.grade.cause for a in faults),
        share(a.alarm for a in healthy),
    ])  # fmt: skip
    return rows


LATE_HEAD = (
    "", "programs", "first cause", "step", "verdict of faults", "no known cause", "faults called healthy",
    "collapses called healthy", "alarms on harmless", "harmless not called healthy", "ECE",
)  # fmt: skip
LATE = """
Trainings that are sound for 300 to 20,000 steps and then change in one thing, under the default budget
([tests/faults/late](../tests/faults/late)): a fault on one tuned task and on one that is held out, or a change on
purpose that does no harm. A step is right within two, or within 1% of the onset if that is more; an interval that is
given must hold the onset, widened by as much. A *collapse* is a fault whose loss ends at NaN, or at one and a half
times its level before the onset, nine tenths of the losses at the end above nine tenths of those before: many late
faults leave the training loss as it was, or lower it. The pairs were measured bare with one seed. `make
accuracy` fits confidences on the tuned tasks, too; calibration.json says what those in use were fitted on.
`python benchmarks/late.py` prints each answer."""


def document(answers: Sequence[Answer], late: Sequence[Sequence[str]], seeds: int, command: str, seconds: float) -> str:
    """Return the whole of docs/accuracy.md. ``late`` are the rows of the table of late faults."""
    programs = {a.name: a.program for a in answers}
    held = [a for a in answers if not a.fitted]
    bins = reliability(held)
    lines = [
        "# How often the diagnosis is right",
        "",
        *_origin(list(programs.values()), seeds, command, seconds),
        *INTRODUCTION.format(tasks=", ".join(sorted(FIT_TASKS))).splitlines(),
        "",
        *table(HEAD, (scores(label, mine) for label, mine in parts_of(answers, seeds) if mine)),
        "",
        "## Failures that set in late",
        *LATE.splitlines(),
        "",
        *table(LATE_HEAD, late),
        "",
        "## Strangers in rounds",
        *STRANGERS.splitlines(),
        "",
        "## Against two baselines",
        *BASELINES.splitlines(),
        "",
        *table(BASELINE_HEAD, baseline_rows(held)),
        *DEFAULTS.splitlines(),
        "",
        *table(("rule", "fires on", "default from"), baselines.DEFAULTS),
        *REMARK.splitlines(),
        "",
        "## Is a confidence a probability?",
        "",
        *_wrapped(
            f"Hypotheses on held-out tasks by confidence. Expected calibration error: {calibration_error(bins):.3f}. A "
            "circle's area stands for the number of hypotheses, which the table below gives: most are sure, and a "
            "circle of a few says little. What is said at less than 0.5 names no cause in the verdict."
        ),
        "",
        "![reliability](accuracy.svg)",
        "",
        *table(("hypotheses", "claimed", "right"), ((b.count, f"{b.claimed:.2f}", f"{b.right:.2f}") for b in bins)),
        "",
        "## What is confused",
        "",
        *_missed(answers),
        "",
        *table(("true cause", "said instead", "times"), confusions(answers)),
        "",
        *_lists(answers),
        "## By category",
        "",
        *table(GROUP_HEAD, grouped(answers, lambda a: _category(a.program.golden.cause[0]))),
        "",
        "## By cause",
        "",
        *table(GROUP_HEAD, grouped(answers, lambda a: a.program.golden.cause[0])),
        "",
    ]
    return "\n".join(lines)


def _origin(programs: Sequence[Program], seeds: int, command: str, seconds: float) -> list[str]:
    """Say what was run."""
    faults = sum(bool(p.golden.cause) for p in programs)
    healthy = sum(p.golden.healthy for p in programs)
    said = (
        f"Written by `{command}` (do not edit). {len(programs)} programs of [tests/faults](../tests/faults) and "
        f"[corpus/tasks](../corpus/README.md), {faults} "
        f"with a known fault, {healthy} healthy, {len(programs) - faults - healthy} that fail for no "
        f"cause of the taxonomy; {_seeds(seeds)}. "
        f"This pass took {seconds / 60:.0f} minutes"
        + (": it explained records that an earlier pass had trained." if "--cached" in command else ".")
    )
    return _wrapped(said)


def _seeds(seeds: int) -> str:
    if seeds == 1:
        return "one seed each"
    return f"{seeds} seeds each, but one of those faults that are functions and no scripts"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _lists(answers: Sequence[Answer]) -> list[str]:
    """List alarms, confident answers where there is none, and what went wrong in the measurement."""
    surprises = {(a.name, a.surprise) for a in answers if a.surprise}
    surprises |= {(a.name, f"could not judge {', '.join(a.unjudged)}") for a in answers if a.unjudged}
    unclear = {(a.name, a.grade.said) for a in answers if a.program.golden.unclear and not a.grade.cause}
    listed = (
        ("Alarms on healthy trainings", {(a.name, a.grade.said) for a in answers if a.alarm}),
        ("Confident answers to failures of unknown cause", unclear),
        ("What went wrong in the measurement itself", surprises),
    )
    lines = []
    for title, rows in listed:
        lines += [f"## {title}", "", *(table(("program", "what"), sorted(rows)) if rows else ["None."]), ""]
    return lines


def _missed(answers: Sequence[Answer]) -> list[str]:
    """Say in words what happens to faults that are not named, which causes are weakest, and which have no program."""
    missed = [a for a in answers if a.faulty and not a.grade.cause]
    silent = sum(a.verdict == "healthy" for a in missed)
    lines = _wrapped(
        f"All faults that were not named, over all tasks and seeds: {len(missed)}, of which {silent} were called "
        "healthy. `healthy` means that no known cause is credible, and is no promise."
    )
    by_cause: dict[str, list[bool]] = {}
    for a in answers:
        if a.faulty:
            by_cause.setdefault(a.program.golden.cause[0], []).append(bool(a.grade.cause))
    weak = sorted((sum(right) / len(right), cause, right) for cause, right in by_cause.items() if len(right) > 1)
    listed = [f"{cause} ({sum(right)} of {len(right)})" for part, cause, right in weak if part < WEAK]
    if listed:
        lines += ["", *_wrapped(f"Weakest: {', '.join(listed)}.")]
    true = {cause for a in answers for cause in a.program.golden.every}
    without = sorted({one.id for one in CAUSES} - true)
    if without:
        lines += ["", f"No program here has {', '.join(without)}: tested by records made by hand."]
    return lines


def _category(cause: str) -> str:
    return next((one.category for one in CAUSES if one.id == cause), "not in the package")
