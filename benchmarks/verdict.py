"""From results to claims: where each one holds and where it does not, decided by the numbers and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]

# The trainer's verdicts on the difference between a band and the baseline, as they are put in a sentence.
MEANING = {
    "holds": "more entropy at equal accuracy",
    "negligible": "no difference that matters",
    "less entropy": "less entropy",
    "undecided": "undecided",
    "lower accuracy": "more entropy, but at lower accuracy",
    "accuracy undecided": "more entropy, but equal accuracy is not established",
}


@dataclass(frozen=True)
class Claim:
    """A claim and what became of it.

    Attributes:
        statement: the claim, one sentence.
        status: "holds", "fails", "mixed" (it holds in some regimes only) or "undecided".
        findings: where it holds and where it does not, with the numbers, one entry a regime.
    """

    statement: str
    status: str
    findings: tuple[str, ...]


def verified(verifications: Sequence[Record]) -> bool:
    """Whether every check of every divergence passed; no divergence at all proves nothing."""
    return bool(verifications) and all(record["passed"] for record in verifications)


def claims(results: Record) -> list[Claim]:
    """All claims of the report, in its order."""
    return [verification_claim(results["verification"]), entropy_claim(results["correct"]), bias_claim(results["coin"])]


def verdict(found: Sequence[Claim]) -> str:
    """The one line that the command ends with."""
    sentences = ("; ".join(claim.findings) for claim in found)
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences)


def verification_claim(verifications: Sequence[Record]) -> Claim:
    """The bounds are those of the definition."""
    statement = "The shipped bounds are those of the definition: every check of every divergence passes."
    passed = [record for record in verifications if record["passed"]]
    checks = [check["passed"] for record in passed for check in record["checks"]]
    counts = f"{checks.count(True)} checks passed"
    if None in checks:
        counts += f", {checks.count(None)} not applicable"
    findings = []
    for record in verifications:
        failures = [check["name"] for check in record["checks"] if check["passed"] is False]
        if not record["passed"]:
            findings.append(f"FAILED {record['divergence']} ({', '.join(failures)})")
    if passed:
        findings.append(f"verified {_names(passed)} ({counts})")
    return Claim(statement, "holds" if verified(verifications) else "fails", tuple(findings or ["nothing was verified"]))


def entropy_claim(comparison: Record) -> Claim:
    """A band keeps more entropy than the baseline at equal accuracy."""
    config = comparison["config"]
    statement = f"With a signal, a band keeps more entropy than {config['baseline']} at equal accuracy."
    bands = _bands(comparison)
    findings = []
    for rate in config["learning_rates"]:
        here = [row for row in bands if row["learning_rate"] == rate]
        findings.append(f"learning rate {rate:g}: {_regime(here) if here else 'no band was compared'}")
    findings[0] = f"bands against {config['baseline']}, {findings[0]}"
    return Claim(statement, _status(bands), tuple(findings))


def bias_claim(comparison: Record) -> Claim:
    """Without a signal, the baseline loses entropy that a band keeps."""
    config = comparison["config"]
    baseline = config["baseline"]
    statement = (
        f"Without a signal, {baseline} loses entropy that a band keeps: nothing can be learnt, so what differs between rules "
        "is their own bias."
    )
    bands = _bands(comparison)
    findings = []
    for rate in config["learning_rates"]:
        here = [row for row in comparison["rows"] if row["learning_rate"] == rate]
        reference = next(row for row in here if row["verdict"] == "baseline")
        kept = [row["entropy"] for row in bands if row["learning_rate"] == rate]
        others = f"bands {_span(kept, '.2f')}" if kept else "no band was compared"
        left = f"{baseline} {reference['entropy']:.2f}, {others} of {comparison['initial_entropy']:.2f} nats left"
        findings.append(f"coin for a reward, learning rate {rate:g}: {left}")
    return Claim(statement, _status(bands), tuple(findings))


def _bands(comparison: Record) -> list[Record]:
    return [row for row in comparison["rows"] if row["band"] and row["verdict"] != "baseline"]


def _regime(rows: Sequence[Record]) -> str:
    """What the bands did at one learning rate."""
    groups: dict[str, list[Record]] = {}
    for row in rows:
        groups.setdefault(row["verdict"], []).append(row)
    parts = []
    for name, group in groups.items():
        who = "" if len(groups) == 1 else f" for {', '.join(row['rule'] for row in group)}"
        means = [row["entropy_difference"]["mean"] for row in group]
        parts.append(f"{MEANING[name]}{who} ({_span(means, '+.3f')} nats)")
    return ", ".join(parts)


def _status(rows: Sequence[Record]) -> str:
    """One word for the verdicts of all regimes."""
    found = {row["verdict"] for row in rows}
    if found == {"holds"}:
        return "holds"
    if "holds" in found:
        return "mixed"
    return "undecided" if not found or found & {"undecided", "accuracy undecided"} else "fails"


def _span(values: Sequence[float], digits: str) -> str:
    """From the smallest to the largest, one number where they agree in the digits shown."""
    low, high = format(min(values), digits), format(max(values), digits)
    return low if low == high else f"{low} to {high}"


def _names(records: Sequence[Record]) -> str:
    return ", ".join(record["divergence"] for record in records)
