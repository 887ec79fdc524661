"""The sections on entropy: where a band keeps more of it than a fixed clip, where not, and with which uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.markup import Cell, Markup, Piece, figure, join, percent, table, tag, text

Record = Mapping[str, Any]

CLASSES = {
    "baseline": "reference",
    "holds": "more",
    "negligible": "even",
    "less entropy": "less",
    "undecided": "unclear",
    "lower accuracy": "unclear",
    "accuracy undecided": "unclear",
}


def comparison_section(comparison: Record, image: bytes) -> Markup:
    """The comparison with a signal: first the regimes, then all numbers."""
    config = comparison["config"]
    baseline = config["baseline"]
    intro = (
        f"A softmax policy on {config['contexts']} contexts × {config['actions']} actions, {config['random_correct'] + 1} of "
        f"them correct. Each step draws {config['samples']} samples a context, normalises their rewards into advantages and "
        f"takes {config['inner_steps']} gradient steps on the clipped surrogate. {config['steps']} steps, {config['seeds']} "
        f"seeds, paired across rules. Does a rule keep more entropy than {baseline} at equal accuracy? The answer is given by "
        "learning rate, because the learning rate decides how active the trust region is (last line of the table)."
    )
    return tag(
        "section",
        tag("h2", "Entropy with a signal: the bandit"),
        tag("p", intro),
        regimes(comparison),
        tag("p", _legend(config), class_="soft"),
        figure(image, _caption(config), "Entropy, accuracy and clipped samples against steps, by rule and learning rate."),
        tag("h3", "All numbers"),
        numbers(comparison),
        words(comparison),
    )


def coin_section(comparison: Record, image: bytes) -> Markup:
    """The null test."""
    config = comparison["config"]
    intro = (
        f"The reward is 1 with probability {config['success_rate']:g} whatever was sampled, so there is nothing to learn, and "
        "every change of entropy is bias; what a rule adds to it shows against none. "
        f"{config['contexts']} contexts, {config['inner_steps']} gradient steps a step, "
        f"{config['steps']} steps, {config['seeds']} paired seeds, initial entropy {comparison['initial_entropy']:.3f} nats."
    )
    return tag(
        "section",
        tag("h2", "Entropy without a signal: the null test"),
        tag("p", intro),
        numbers(comparison),
        figure(image, _caption(config), "Entropy and clipped samples against steps, by rule."),
        words(comparison),
    )


def words(comparison: Record) -> Markup:
    """The findings as sentences, folded away since the tables say the same."""
    return tag("details", tag("summary", "The same in words"), *(tag("p", sentence) for sentence in comparison["sentences"]))


def regimes(comparison: Record) -> Markup:
    """Rules × learning rates: the difference of entropy at the end, its interval, and what that means for the claim."""
    config = comparison["config"]
    rates = config["learning_rates"]
    headings: list[Piece] = ["rule", *(f"learning rate {rate:g}" for rate in rates)]
    rows: list[list[Piece | Cell]] = []
    clipped: list[Piece | Cell] = [f"samples clipped in the first {comparison['first_steps']} steps"]
    for rate in rates:
        shares = [row["clipped_first"] for row in comparison["rows"] if row["learning_rate"] == rate and row["rule"] != "none"]
        clipped.append(Cell(f"{percent(min(shares), 0)} to {percent(max(shares), 0)}" if shares else "–", "reference"))
    for rule in config["rules"]:
        found = {row["learning_rate"]: row for row in comparison["rows"] if row["rule"] == rule}
        rows.append([Cell(tag("code", rule), "nowrap"), *(_regime(found[rate]) for rate in rates)])
    caption = f"Final entropy minus that of {config['baseline']} (nats), mean and 95 % interval"
    return table(headings, [*rows, clipped], caption=caption)


def _regime(row: Record) -> Cell:
    if row["verdict"] == "baseline":
        return Cell(join([f"{row['entropy']:.3f} nats", tag("small", "the baseline")]), CLASSES["baseline"])
    verdict = "more entropy at equal accuracy" if row["verdict"] == "holds" else row["verdict"]
    return Cell(join([interval(row["entropy_difference"]), tag("small", verdict)]), CLASSES[row["verdict"]])


def numbers(comparison: Record) -> Markup:
    """The whole table: one row per learning rate and rule."""
    config = comparison["config"]
    coin = config["reward"] == "coin"
    headings: list[Piece] = ["rate", "rule", "entropy (nats)", "accuracy", "effective correct", "clipped"]
    headings += [f"entropy − {config['baseline']}", f"accuracy − {config['baseline']}"]
    headings += [] if coin else [f"entropy − {config['baseline']} at accuracy {config['accuracy_level']:g}"]
    rows = [_numbers_row(row, with_level=not coin) for row in comparison["rows"]]
    caption = (
        "Means over seeds after the last step; differences are paired by seed, with 95 % bootstrap intervals (BCa). "
        "Effective correct: the "
        "exponential of the entropy over correct actions. Clipped: share of all samples of the run."
    )
    return table(headings, rows, numeric=(0, *range(2, len(headings))), caption=caption)


def _numbers_row(row: Record, with_level: bool) -> list[Piece | Cell]:
    class_ = CLASSES[row["verdict"]]
    cells: list[Piece | Cell] = [
        f"{row['learning_rate']:g}",
        Cell(tag("code", row["rule"]), "nowrap"),
        f"{row['entropy']:.3f}",
        f"{row['accuracy']:.3f}",
        f"{row['effective_correct']:.2f}",
        percent(row["clipped"], 2),
        Cell(stacked(row["entropy_difference"]), f"{class_} wide"),
        stacked(row["accuracy_difference"]),
    ]
    return [*cells, stacked(row["entropy_difference_at_level"])] if with_level else cells


def interval(value: Record) -> str:
    """A mean with its interval."""
    mean, low, high = (f"{value[key]:+.3f}".replace("-", "−") for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def stacked(value: Record | None) -> Markup:
    """A mean above its interval; a dash where there is none."""
    if value is None:
        return text("–")
    mean, _, limits = interval(value).partition(" ")
    return join([mean, tag("small", limits)])


def _legend(config: Record) -> str:
    return (
        f"Green: more entropy, and the whole interval of the difference of accuracy lies above −{config['accuracy_margin']:g}. "
        f"Grey: the interval stays within {config['entropy_margin']:.0%} of the initial entropy, too little to matter. Red: "
        "less entropy. Yellow: not decided by these seeds, or at the price of accuracy."
    )


def _caption(config: Record) -> str:
    return (
        f"Lines: means over {config['seeds']} seeds. Shaded: pointwise 95 % bootstrap bands. Clipped samples are a share of "
        "the samples of a step."
    )
