"""From curves to findings: a table of paired differences and what it means in words, computed from the intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bandtheory import rules as clip_rules
from trainer.statistics import Array, Interval, paired_difference

if TYPE_CHECKING:
    from rich.table import Table

    from trainer.compare import Comparison

FEW_SEEDS = 5  # below, the intervals are not worth reading
WIDE = 150  # columns of a terminal from which every column of the table is shown
FIRST_STEPS = 10
"""The clip fraction over this many first steps says how active the trust region is, before policies have drifted apart."""

Verdict = Literal["baseline", "holds", "negligible", "less entropy", "undecided", "lower accuracy", "accuracy undecided"]

MEANING: dict[Verdict, str] = {
    "holds": "more entropy at equal accuracy",
    "negligible": "a difference of entropy too small to matter",
    "less entropy": "less entropy",
    "undecided": "undecided, the interval contains no difference and ones that matter",
    "lower accuracy": "more entropy, but at lower accuracy",
    "accuracy undecided": "more entropy, but equal accuracy is not established",
}


@dataclass(frozen=True)
class Row:
    """One rule at one learning rate. Means over seeds; differences are to the baseline, None for the baseline itself.

    entropy, accuracy, effective_correct and the first two differences belong to the last step. entropy_difference_at_level is
    taken where each run first reaches ``config.accuracy_level``; None where some run never does.
    """

    learning_rate: float
    rule: str
    entropy: float
    accuracy: float
    effective_correct: float
    clipped_first: float
    clipped: float
    entropy_difference: Interval | None
    accuracy_difference: Interval | None
    entropy_difference_at_level: Interval | None
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def rows(comparison: Comparison) -> list[Row]:
    """One row per learning rate and rule, in the order of the configuration."""
    config = comparison.config
    return [_row(comparison, i, j) for j in range(len(config.learning_rates)) for i in range(len(config.rules))]


def _row(comparison: Comparison, rule: int, rate: int) -> Row:
    config = comparison.config
    baseline = config.rules.index(config.baseline)
    clipped = comparison.curve("clipped_up", rule, rate) + comparison.curve("clipped_down", rule, rate)
    entropy_difference = accuracy_difference = at_level = None
    verdict: Verdict = "baseline"
    if rule != baseline:
        entropy_difference = _final_difference(comparison, "entropy", rule, baseline, rate)
        accuracy_difference = _final_difference(comparison, "accuracy", rule, baseline, rate)
        at_level = _difference_at_level(comparison, rule, baseline, rate)
        negligible = config.entropy_margin * float(comparison.entropy[0].mean())
        verdict = judge(entropy_difference, accuracy_difference, negligible, config.accuracy_margin)
    return Row(
        learning_rate=config.learning_rates[rate],
        rule=config.rules[rule],
        entropy=float(comparison.curve("entropy", rule, rate)[-1].mean()),
        accuracy=float(comparison.curve("accuracy", rule, rate)[-1].mean()),
        effective_correct=float(comparison.curve("effective_correct", rule, rate)[-1].mean()),
        clipped_first=float(clipped[:FIRST_STEPS].mean()),
        clipped=float(clipped.mean()),
        entropy_difference=entropy_difference,
        accuracy_difference=accuracy_difference,
        entropy_difference_at_level=at_level,
        verdict=verdict,
    )


def _final_difference(comparison: Comparison, name: str, rule: int, baseline: int, rate: int) -> Interval:
    ours, theirs = (comparison.curve(name, index, rate)[-1] for index in (rule, baseline))
    return paired_difference(ours, theirs, seed=comparison.config.seed)


def _difference_at_level(comparison: Comparison, rule: int, baseline: int, rate: int) -> Interval | None:
    level = comparison.config.accuracy_level
    ours, theirs = (
        entropy_at_accuracy(comparison.curve("entropy", index, rate), comparison.curve("accuracy", index, rate), level)
        for index in (rule, baseline)
    )
    if np.isnan(ours).any() or np.isnan(theirs).any():
        return None
    return paired_difference(ours, theirs, seed=comparison.config.seed)


def entropy_at_accuracy(entropy: Array, accuracy: Array, level: float) -> Array:
    """Entropy ``(S,)`` where each seed's accuracy first reaches ``level``, interpolated between two steps; both ``(T, S)``.

    NaN for a seed that never reaches it, or starts above it.
    """
    reached = accuracy >= level
    after = reached.argmax(0)
    seeds = np.arange(accuracy.shape[1])
    before = np.maximum(after - 1, 0)
    rise = accuracy[after, seeds] - accuracy[before, seeds]
    share = (level - accuracy[before, seeds]) / np.where(after > 0, rise, np.nan)
    found: Array = entropy[before, seeds] + share * (entropy[after, seeds] - entropy[before, seeds])
    return found


def judge(entropy: Interval, accuracy: Interval, negligible: float, margin: float) -> Verdict:
    """Whether a rule keeps more entropy than the baseline at equal accuracy, from intervals of the paired differences.

    Equal accuracy means that the whole interval lies above ``−margin``: absence of a significant loss would not be enough.
    """
    if -negligible < entropy.low and entropy.high < negligible:
        return "negligible"
    if entropy.high < 0:
        return "less entropy"
    if entropy.low <= 0:
        return "undecided"
    if accuracy.low >= -margin:
        return "holds"
    return "lower accuracy" if accuracy.high < -margin else "accuracy undecided"


def sentences(comparison: Comparison) -> list[str]:
    """The findings in plain words: one paragraph per learning rate, then one on the claim as a whole."""
    config = comparison.config
    initial = float(comparison.entropy[0].mean())
    spoken = []
    for rate in config.learning_rates:
        here = [row for row in comparison.rows if row.learning_rate == rate]
        spoken.append(_regime_sentence(here, config.baseline, initial))
        at_level = [f"{row.rule} ({row.entropy_difference_at_level})" for row in here if row.entropy_difference_at_level]
        if at_level:
            spoken.append(
                f"Learning rate {rate:g}, entropy minus that of {config.baseline} not at equal steps but where accuracy first "
                f"reaches {config.accuracy_level:g}: {', '.join(at_level)}."
            )
    spoken.append(_claim_sentence(comparison))
    spoken.append(
        f"Equal accuracy: the interval of the difference is above -{config.accuracy_margin:g}. Too small to matter: it stays "
        f"within {config.entropy_margin:.1%} of the initial entropy, {config.entropy_margin * initial:.3f} nats."
    )
    if config.seeds < FEW_SEEDS:
        spoken.append(f"{config.seeds} seeds show that it runs; intervals from so few mean little.")
    if config.reward == "coin":
        spoken.append(
            "The reward is a coin, so nothing can be learnt and accuracies are equal by construction: every departure from the "
            f"initial entropy {initial:.2f} is the bias of the rule, the advantages and the sampling noise."
        )
    return spoken


def _regime_sentence(here: list[Row], baseline: str, initial: float) -> str:
    """What happened at one learning rate."""
    reference = next(row for row in here if row.verdict == "baseline")
    others = [row.clipped_first for row in here if row is not reference] or [0.0]
    lead = (
        f"Learning rate {reference.learning_rate:g}: in the first {FIRST_STEPS} steps {baseline} cuts "
        f"{reference.clipped_first:.1%} of the samples, the other rules {min(others):.1%} to {max(others):.1%}. "
        f"The entropy of {baseline} goes from {initial:.2f} to {reference.entropy:.3f} nats, its accuracy ends at "
        f"{reference.accuracy:.3f}."
    )
    parts = []
    for verdict, meaning in MEANING.items():
        found = [f"{row.rule} ({row.entropy_difference})" for row in here if row.verdict == verdict]
        if found:
            parts.append(f"{meaning[0].upper()}{meaning[1:]}: {', '.join(found)}.")
    return " ".join([lead, *parts])


def _claim_sentence(comparison: Comparison) -> str:
    """Where the claim about bands holds, and where it does not."""
    bands = [
        row for row in comparison.rows if isinstance(clip_rules.parse(row.rule), clip_rules.Band) and row.verdict != "baseline"
    ]
    baseline = comparison.config.baseline
    if not bands:
        return f"No band was compared with {baseline}."
    claim = f"The claim that a band keeps more entropy than {baseline} at equal accuracy"
    held = [row for row in bands if row.verdict == "holds"]
    failed = [row for row in bands if row.verdict != "holds"]
    if not failed:
        return f"{claim} holds for every band at every learning rate compared."
    if not held:
        return f"{claim} holds for no band at any learning rate compared."
    return f"{claim} holds {_places(held)}. It does not {_places(failed)}."


def _places(found: list[Row]) -> str:
    """Rules grouped by learning rate, as in: at learning rate 1 for a, b; at learning rate 3 for a."""
    rules: dict[float, list[str]] = {}
    for row in found:
        rules.setdefault(row.learning_rate, []).append(row.rule)
    return "; ".join(f"at learning rate {rate:g} for {', '.join(names)}" for rate, names in rules.items())


def table(comparison: Comparison, width: int = 200) -> Table:
    """The rows as a table for a terminal of so many columns; a narrow one gets what the findings speak about."""
    from rich.table import Table

    config, baseline = comparison.config, comparison.config.baseline
    columns: dict[str, Callable[[Row], str]] = {
        "rate": lambda row: f"{row.learning_rate:g}",
        "rule": lambda row: row.rule,
        "entropy": lambda row: f"{row.entropy:.3f}",
        "accuracy": lambda row: f"{row.accuracy:.3f}",
        "effective correct": lambda row: f"{row.effective_correct:.2f}",
        f"clipped, first {FIRST_STEPS}": lambda row: f"{row.clipped_first:.2%}",
        "clipped": lambda row: f"{row.clipped:.2%}",
        f"entropy − {baseline}\n95 % interval": lambda row: str(row.entropy_difference or ""),
        f"accuracy − {baseline}\n95 % interval": lambda row: str(row.accuracy_difference or ""),
        f"entropy − {baseline}\nat accuracy {config.accuracy_level:g}": lambda row: str(row.entropy_difference_at_level or ""),
        "verdict": lambda row: row.verdict,
    }
    if width < WIDE:
        kept = ("rate", "rule", "entropy", "accuracy", f"entropy − {baseline}\n95 % interval")
        columns = {heading: columns[heading] for heading in kept}
    shown = Table(title=f"{config.task}, reward {config.reward}, {config.seeds} paired seeds, {config.steps} steps")
    for heading in columns:
        left = heading in ("rule", "verdict") or "\n" in heading
        shown.add_column(heading, justify="left" if left else "right", no_wrap=heading != "verdict", overflow="fold")
    for row in comparison.rows:
        shown.add_row(*(cell(row) for cell in columns.values()), end_section=row.rule == config.rules[-1])
    return shown
