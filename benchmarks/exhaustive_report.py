"""What an exhaustive comparison writes about each bound and prints, and whether that is within what is allowed."""

from __future__ import annotations

from typing import Any

ALLOWED_DENORMAL = 4.0  # units of 2⁻¹⁴⁹, of ratios below the least normal float32: all terms of a cubic are rounded to them
BINS = {"float32": ("correctly_rounded", "below_1", "below_2", "more"), "half": ("correctly_rounded", "off_by_one", "more")}

Record = dict[str, Any]


def side_record(found: Record, kind: str, allowed: float | None, reference_error: float) -> Record:
    """One bound of one case, as it is written."""
    certificates = {
        "made": found["certificates"],
        "hold": found["certificates"] - len(found["not_certified"]),
        "that_do_not": [{"logp": at, "bound": f"{b:.16e}", "verdict": v} for at, b, v in found["not_certified"][:20]],
    }
    ratio, bins = found["ratio"], BINS[kind]
    row = _errors(found, bins) | {
        "not_a_number": found["not_a_number"],
        "infinity_differs": found["infinity_differs"],
        "certificates": certificates,
    }
    passed = not (found["not_certified"] or found["not_a_number"] or found["infinity_differs"])
    if allowed is None:
        row |= {"decided_by_certificate": found["decided"], "ratio": _errors(ratio, bins) | {"undecided": ratio["undecided"]}}
        return row | {"passed": passed and sum(found["counts"][1:]) + sum(ratio["counts"][1:]) == 0}
    slack = reference_error * 2.0**24  # the largest error of the reference, in units in the last place of a float32
    row["ratio"] = _errors(ratio, bins) | {
        "worst_ulp_and_reference_error": ratio["largest"],
        "denormal": {"inputs": ratio["denormal"], "worst": ratio["largest_denormal"]},
        **{name: {"inputs": ratio[name][0], "wrong": ratio[name][1]} for name in ("overflow", "zero")},
    }
    passed = passed and row["worst_ulp"] + slack <= allowed and ratio["largest"] <= allowed
    exceptions = ratio["largest_denormal"] <= ALLOWED_DENORMAL and ratio["overflow"][1] + ratio["zero"][1] == 0
    return row | {"passed": passed and exceptions}


def _errors(found: Record, bins: tuple[str, ...]) -> Record:
    """Of one quantity; there may be none where it is finite and normal."""
    worst_ulp, worst_at = found["worst"][0][:2] if found["worst"] else (0.0, None)
    return {
        "inputs": found["inputs"],
        "worst_ulp": worst_ulp,
        "worst_at": worst_at,
        "histogram": dict(zip(bins, found["counts"], strict=False)),
        "worst_inputs": [{"logp": at, "bound": f"{bound:.16e}", "ulp": error} for error, at, bound in found["worst"]],
    }


def report(record: Record) -> list[str]:
    """A line for each bound: its worst error and where, and what is wrong with it, if anything is."""
    lines = []
    for row in record["rows"]:
        for name in ("lower", "upper"):
            side = row[name]
            bins = ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in side["histogram"].items() if count)
            held, at = side["certificates"], float.fromhex(side["worst_at"])
            lines.append(
                f"{row['type']} {row['rule']} {name}: worst {side['worst_ulp']:.4f} ulp at {at!r}; {bins}; "
                f"ratio: worst {side['ratio']['worst_ulp']:.4f} ulp; "
                f"{held['hold']:,} of {held['made']:,} certificates hold{'' if side['passed'] else '; FAILED'}"
            )
    failed = sum(line.endswith("FAILED") for line in lines)
    return [*lines, f"{len(lines) - failed} of {len(lines)} bounds are within what is allowed"]
