"""report.html: one page that needs nothing but itself, made from what report.json holds and the figures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.markup import Markup, Piece, badge, figure, join, tag, text
from benchmarks.report_entropy import coin_section, comparison_section
from benchmarks.report_evidence import audit_section, verification_section

Results = Mapping[str, Any]

STYLE = Path(__file__).with_name("report.css")
TITLE = "Trust regions of language-model policies: what was verified, what was measured"


def page(results: Results, figures: Mapping[str, bytes]) -> str:
    """The whole page.

    Args:
        results: the content of report.json.
        figures: PNG images named rules, audit, correct and coin.
    """
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", "bandtheory: report"),
            tag("style", Markup(STYLE.read_text(encoding="utf-8"))),
        ],
        "\n",
    )
    body = join(
        [
            _header(results),
            _claims(results),
            _rules(figures["rules"]),
            verification_section(results["verification"]),
            audit_section(results["audit"], figures["audit"]),
            comparison_section(results["correct"], figures["correct"]),
            coin_section(results["coin"], figures["coin"]),
            _provenance(results["run"]),
        ],
        "\n",
    )
    document = tag("html", Markup("\n"), tag("head", head), Markup("\n"), tag("body", tag("main", body)), lang="en")
    return f"<!doctype html>\n{document}\n"


def _header(results: Results) -> Markup:
    run = results["run"]
    machine = run["machine"]
    date = datetime.fromisoformat(run["date"]).strftime("%-d %B %Y, %H:%M UTC")
    line = f"{date} · {run['seconds']:.0f} s on {machine['cores']} cores of {machine['processor']} · "
    return tag(
        "header",
        tag("h1", TITLE),
        tag("p", line, tag("code", run["command"]), f" · bandtheory {run['versions']['bandtheory']}", class_="soft"),
    )


def _claims(results: Results) -> Markup:
    cards = [
        tag(
            "div",
            badge(claim["status"]),
            tag("p", claim["statement"], class_="statement"),
            tag("ul", *(tag("li", line) for line in claim["findings"])),
            class_=f"claim {claim['status']}",
        )
        for claim in results["claims"]
    ]
    return tag("div", *cards, class_="claims")


def _rules(image: bytes) -> Markup:
    caption = (
        "Left: the interval that each rule leaves to the ratio r = π_new / π_old of a token, against its old probability p. "
        "Right: the change of probability that this is. A fixed clip gives an improbable token a change proportional to p; a "
        "band gives it one that shrinks like √p or not at all, until the cap on its ratio is reached. Dotted: what no policy "
        "can exceed. Ratios have no unit."
    )
    return _section("The rules", figure(image, caption, "Ratio bounds and allowed probability changes against p."))


def _provenance(run: Results) -> Markup:
    machine = run["machine"]
    memory = "unknown" if machine["memory_gib"] is None else f"{machine['memory_gib']:g} GiB"
    facts: dict[str, Piece] = {
        "command": tag("code", run["command"]),
        "date": run["date"],
        "duration": f"{run['seconds']:.0f} s, without installation",
        "machine": f"{machine['processor']}, {machine['cores']} cores, {memory} memory, {machine['system']}",
        "versions": ", ".join(f"{name} {number}" for name, number in run["versions"].items()),
    }
    rows = join(join([tag("dt", name), tag("dd", value)]) for name, value in facts.items())
    note = (
        "The numbers of the comparisons depend on the seeds and on nothing that happens at run time, except that another "
        "processor or another release of torch can round differently. report.json beside this file holds all tables."
    )
    return _section("How this was run", tag("dl", rows), tag("p", note, class_="soft"))


def _section(title: str, *content: Piece) -> Markup:
    return tag("section", tag("h2", title), *(text(piece) for piece in content))
