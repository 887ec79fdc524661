"""The sections on verification and audit: what was checked over which inputs, and what rules would have clipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.markup import Cell, Markup, Piece, badge, figure, join, percent, table, tag, text

Record = Mapping[str, Any]

RESULT = {True: "passed", False: "failed", None: "n/a"}


def verification_section(verifications: Sequence[Record]) -> Markup:
    """One line a divergence, then every check of each."""
    intro = (
        "One convex generator f defines a band: the ratios r that some policy within f-divergence δ of the old one can give to "
        "a token of old probability p. Every divergence below went through the same checks against independent methods: "
        "high-precision arithmetic on the definition, the n-token convex program, and the properties that theory demands."
    )
    about, outcome = (
        ("divergence", "generator f(u)", "f(0)", "f′(∞)", "bounds"),
        ("passed", "failed", "n/a", "time (s)", "result"),
    )
    overview = table((*about, *outcome), map(_overview, verifications), numeric=(2, 3, 5, 6, 7, 8))
    return tag("section", tag("h2", "Verification"), tag("p", intro), overview, *map(_checks, verifications))


def _overview(record: Record) -> list[Piece | Cell]:
    derived = record["derived"]
    passed, failed, absent = (sum(check["passed"] is value for check in record["checks"]) for value in (True, False, None))
    about: list[Piece | Cell] = ["", "", Cell("not derived", "nowrap")]
    if derived is not None:
        limits = (f"{float(derived[key]):.4g}".replace("inf", "∞") for key in ("value_at_zero", "recession_slope"))
        about = [*limits, Cell("closed form" if derived["closed_form"] else "root", "nowrap")]
    return [
        join([tag("code", record["divergence"]), tag("small", derived["title"] if derived else "")]),
        Cell(tag("code", record["generator"]), "nowrap"),
        *about,
        str(passed),
        str(failed),
        str(absent),
        f"{record['seconds']:.1f}",
        badge("passed" if record["passed"] else "failed"),
    ]


def _checks(record: Record) -> Markup:
    """All checks of one divergence, opened where one failed."""
    headings = ("check", "theorem", "inputs", "worst deviation", "time (s)", "result")
    rows = [
        (
            check["name"],
            check["theorem"],
            join([check["inputs"], tag("small", check["note"])]) if check["note"] else check["inputs"],
            worst(check["worst"], check["unit"]),
            f"{check['seconds']:.2f}",
            badge(RESULT[check["passed"]]),
        )
        for check in record["checks"]
    ]
    failures = [tag("pre", check["counterexample"]) for check in record["checks"] if check["counterexample"]]
    count = tag("span", f" · {len(rows)} checks", class_="soft")
    parts = (tag("summary", record["divergence"], count), *failures, table(headings, rows, numeric=(3, 4)))
    return tag("details", *parts) if record["passed"] else tag("details", *parts, open="open")


def worst(value: float | None, unit: str) -> Markup:
    """A deviation in few digits above its unit; a dash where nothing was measured."""
    if value is None:
        return text("–")
    return join(["0" if value == 0 else f"{value:.1e}", tag("small", unit)])


def audit_section(audit: Record, image: bytes) -> Markup:
    """What each rule would have clipped, in total and by old probability."""
    intro = (
        f"{audit['tokens']:,} tokens of one real policy-gradient step of a language model (SmolLM2-135M-Instruct on one-digit "
        "sums), bundled with the library. A token is clipped up where its advantage is positive and its ratio above the upper "
        "bound, down where the advantage is negative and the ratio below the lower one; then its gradient is lost. The mass of "
        "a token is |advantage| · ratio."
    )
    headings = ("rule", "clipped up", "clipped down", "gradient mass removed", "upper bound (ratio)", "lower bound (ratio)")
    totals = [_rule_row(row) for row in audit["rules"]]
    labels = bin_labels(audit["bins"]["edges"])

    def by_bin(caption: str, cell: Callable[[Record, int], str]) -> Markup:
        names = [tag("code", row["rule"]) for row in audit["rules"]]
        tokens = (f"{count:,}" for count in audit["bins"]["tokens"])
        cells = ([cell(row, i) for row in audit["rules"]] for i in range(len(labels)))
        rows = [(label, count, *shown) for label, count, shown in zip(labels, tokens, cells, strict=True)]
        return table(("p", "tokens", *names), rows, numeric=range(1, len(names) + 2), caption=caption)

    def clipped(row: Record, i: int) -> str:
        return f"{row['clipped_up'][i]:,} + {row['clipped_down'][i]:,}"

    def removed(row: Record, i: int) -> str:
        return percent(row["removed_share_by_bin"][i], 1)

    return tag(
        "section",
        tag("h2", "Audit of real tokens"),
        tag("p", intro),
        table(headings, totals, numeric=(1, 2, 3, 4, 5)),
        by_bin("Gradient mass that each rule removes, as a share of the bin's own mass; p is the old probability", removed),
        by_bin("Tokens that each rule clips, up + down", clipped),
        figure(image, "The same as shares of the tokens, or of the mass, of each bin.", "Clipped tokens by bin."),
    )


def _rule_row(row: Record) -> list[Piece | Cell]:
    return [
        Cell(tag("code", row["rule"]), "nowrap"),
        f"{sum(row['clipped_up']):,} ({percent(row['up_fraction'], 2)})",
        f"{sum(row['clipped_down']):,} ({percent(row['down_fraction'], 2)})",
        percent(row["removed_share"], 2),
        span(row["tightest_upper"], row["widest_upper"]),
        span(row["tightest_lower"], row["widest_lower"]),
    ]


def span(tightest: float | str, widest: float | str) -> str:
    """From the tightest to the widest bound, one number where they agree."""
    texts = [value.replace("inf", "∞") if isinstance(value, str) else f"{value:.4g}" for value in (tightest, widest)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def bin_labels(edges: Sequence[float]) -> list[str]:
    """`[0, 0.01)` and so on, the last one closed."""
    return [f"[{low:g}, {high:g}{']' if high == edges[-1] else ')'}" for low, high in pairwise(edges)]
