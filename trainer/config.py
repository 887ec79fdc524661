"""What a comparison of clip rules consists of: a dataclass that is both the documentation and the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from tyro.constructors import PrimitiveConstructorSpec

from bandtheory import rules as clip_rules

Task = Literal["bandit"]
Reward = Literal["correct", "coin"]

DEFAULT_RULES = ("clip", "clip_higher", "band:kl:0.05", "band:tv:0.05", "band:pearson_chi2:0.05", "dcpo", "none")

# What a comparison uses where the user says nothing. The coin needs fewer, gentler steps: its whole effect is a drift, which
# would saturate at zero entropy for every rule if it went on for as long as the task with a signal.
REWARD_DEFAULTS: dict[str, dict[str, Any]] = {
    "correct": {"learning_rates": (0.1, 1.0, 3.0), "contexts": 64, "steps": 200, "inner_steps": 16},
    "coin": {"learning_rates": (1.0,), "contexts": 128, "steps": 100, "inner_steps": 4},
}


MOST_LOGITS = 2**27
"""All runs are in memory at once, at some 40 bytes a logit: about 5 GB."""


class ConfigError(ValueError):
    """A comparison that cannot be run; the message names the field, the value and what is accepted."""


def _listed(metavar: str, item: Callable[[str], Any], separator: str) -> PrimitiveConstructorSpec[Any]:
    """A command line list whose items are separated by blanks, or by whatever ``separator`` matches."""

    def read(words: list[str]) -> tuple[Any, ...]:
        return tuple(item(part) for word in words for part in re.split(separator, word) if part)

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} [{metavar} ...]",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(part) for part in value],
    )


Rates = Annotated[tuple[float, ...], _listed("RATE", float, ",")]
# A comma inside a rule, as in clip:0.2,0.28, is followed by a number; one between rules is followed by a name.
Rules = Annotated[tuple[str, ...], _listed("RULE", str, r",(?=[A-Za-z])")]


@dataclass(frozen=True)
class CompareConfig:
    """Train one softmax policy per clip rule, learning rate and seed, and compare what is left of their entropy."""

    task: Task = "bandit"
    """Where the policies act. bandit: independent contexts, one action each, a row of softmax logits per context."""
    reward: Reward = "correct"
    """correct: 1 for a correct action, else 0. coin, the null test: 1 with probability success_rate whatever was done, and
    every change of entropy is bias; what a rule adds to it shows against `none`."""
    rules: Rules = DEFAULT_RULES
    """Clip rules: none, clip, clip_higher, clip:LOW,HIGH, dcpo, band:NAME:RADIUS[:CAP], relaxed:NAME:RADIUS[:CAP]."""
    baseline: str = "clip"
    """The rule that the others are compared with, seed by seed; one of the rules."""
    learning_rates: Rates = ()
    """Step sizes of plain gradient descent on the logits of one context. When empty: 0.1 1 3, and 1 for the coin."""
    seeds: int = 10
    """Number of paired runs: a seed fixes initial logits, correct actions and random numbers for every rule."""
    seed: int = 0
    """The first seed."""
    contexts: int | None = None
    """Number of contexts. Default: 64, and 128 for the coin."""
    actions: int = 64
    """Number of actions in each context."""
    random_correct: int = 8
    """Correct actions drawn at random in each context, besides the second most likely one, which is always correct."""
    samples: int = 16
    """Actions sampled in each context at each step: the group over which advantages are normalised."""
    steps: int | None = None
    """Steps, each with fresh samples. Default: 200, and 100 for the coin."""
    inner_steps: int | None = None
    """Full-batch gradient steps on one set of samples. Default: 16, and 4 for the coin."""
    decay: float = 1.2
    """Initial logits are -decay·log(rank), the ranks being a random permutation of the actions."""
    success_rate: float = 0.1
    """Probability of reward 1 in the null test."""
    accuracy_margin: float = 0.01
    """Accuracies count as equal when the interval of their difference stays above minus this."""
    entropy_margin: float = 0.01
    """A difference of entropy counts as negligible inside this share of the initial entropy."""
    accuracy_level: float = 0.99
    """Entropies are also compared where each run first reaches this accuracy: rules learn at different speeds."""
    threads: int = 1
    """Threads of torch; changes no result. More than one pays on idle cores only: the operations are short, and threads that
    wait for each other on a shared machine take several times as long."""
    out: Path | None = None
    """Directory for metrics.json, summary.json, comparison.png and comparison.svg. Default: out/TASK-REWARD."""

    def resolved(self) -> CompareConfig:
        """The same configuration with every default filled in. Raises ConfigError where it cannot be run."""
        if self.reward not in REWARD_DEFAULTS:
            raise ConfigError(f"reward: unknown reward {self.reward!r}; accepted: {', '.join(REWARD_DEFAULTS)}")
        filled = {name: value for name, value in REWARD_DEFAULTS[self.reward].items() if getattr(self, name) in (None, ())}
        config = replace(self, **filled, out=self.out or Path("out") / f"{self.task}-{self.reward}")
        _check(config)
        return config


def _check(config: CompareConfig) -> None:
    """Raise ConfigError for the first field that cannot be used."""
    if config.task not in get_args(Task):
        raise ConfigError(f"task: unknown task {config.task!r}; accepted: {', '.join(get_args(Task))}")
    _check_rules(config)
    for index, rate in enumerate(config.learning_rates):
        if not (math.isfinite(rate) and rate > 0):
            raise ConfigError(f"learning_rates[{index}]: {rate} is not a positive finite number")
    if len(set(config.learning_rates)) < len(config.learning_rates):
        raise ConfigError(f"learning_rates: {_joined(config.learning_rates)} holds one value twice; each must appear once")
    if config.random_correct > config.actions - 2:
        # One action besides the second most likely must stay wrong, or there is nothing to learn.
        accepted = f"at most actions - 2 = {config.actions - 2}"
        raise ConfigError(f"random_correct: {config.random_correct} of {config.actions} actions; accepted: {accepted}")
    for name in ("success_rate", "accuracy_level"):
        if not 0 < getattr(config, name) < 1:
            raise ConfigError(f"{name}: {getattr(config, name)} is not between 0 and 1")
    for name in ("decay", "accuracy_margin", "entropy_margin"):
        if not (math.isfinite(getattr(config, name)) and getattr(config, name) >= 0):
            raise ConfigError(f"{name}: {getattr(config, name)} is not a finite number of at least 0")
    lowest = {
        "seeds": 2,
        "seed": 0,
        "contexts": 1,
        "actions": 3,
        "random_correct": 0,
        "samples": 2,
        "steps": 1,
        "inner_steps": 1,
        "threads": 1,
    }
    for name, least in lowest.items():
        if getattr(config, name) < least:
            raise ConfigError(f"{name}: {getattr(config, name)} is too small; accepted: {least} or more")
    assert config.contexts is not None
    logits = len(config.rules) * len(config.learning_rates) * config.seeds * config.contexts * config.actions
    if logits > MOST_LOGITS:
        product = "rules x learning_rates x seeds x contexts x actions"
        raise ConfigError(f"contexts: {config.contexts} makes {logits:,} logits ({product}); accepted: {MOST_LOGITS:,} at most")


def _check_rules(config: CompareConfig) -> None:
    """Raise ConfigError unless the rules can be read, differ from each other and include the baseline."""
    seen: dict[str, str] = {}
    for index, text in enumerate(config.rules):
        try:
            canonical = str(clip_rules.parse(text))
        except ValueError as error:
            raise ConfigError(f"rules[{index}]: {error}") from error
        if canonical in seen:
            raise ConfigError(f"rules[{index}]: {text!r} is the same rule as {seen[canonical]!r}; each must appear once")
        seen[canonical] = text
    if config.baseline not in config.rules:
        raise ConfigError(f"baseline: {config.baseline!r} is not among the rules compared: {_joined(config.rules)}")


def _joined(values: tuple[Any, ...]) -> str:
    return " ".join(str(value) for value in values)
