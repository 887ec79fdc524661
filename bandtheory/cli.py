"""The command `bandtheory`. Exit status: 0 done, 1 a check failed, 2 wrong usage, 130 interrupted.

One dataclass a command: its fields are the arguments, the text under each is the help. What a command needs is imported when it
runs, so that `--help` answers at once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bandtheory._version import __version__
from bandtheory.table_command import TableCommand
from bandtheory.terminal import UsageError, console, exit_status, print_json, progress, read_arguments
from bandtheory.verify_command import VerifyCommand

if TYPE_CHECKING:
    from rich.console import RenderableType

PROGRAM = "bandtheory"
DESCRIPTION = f"""Verified trust regions for reinforcement learning of language models (version {__version__}).

DIVERGENCE is a catalogue name (see `bandtheory list`) or a convex generator in u with f(1) = 0, such as "u*log(u)".

RULE is none, clip[:low,high], clip_higher, dcpo[:low,high], band:DIVERGENCE:delta[:cap] or relaxed:DIVERGENCE:delta[:cap].

Exit status: 0 done, 1 a check failed, 2 wrong usage."""

DEFAULT_RULES = ("clip", "clip_higher", "dcpo", "band:kl:0.05:10")
DEFAULT_PROBABILITIES = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)

Json = Annotated[bool, tyro.conf.arg(name="json", help_behavior_hint="")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIVERGENCE")]
Rules = Annotated[tuple[str, ...], tyro.conf.arg(metavar="RULE ...")]


@dataclass(frozen=True)
class ListCommand:
    """The shipped divergences, their limits, and if a form is closed; families at two values of their parameter.

    Example: bandtheory list --json
    """

    as_json: Json = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        from bandtheory.catalogue import examples
        from bandtheory.divergence import divergence
        from bandtheory.listings import list_table, summary

        names = examples()
        rows = []
        with progress("deriving") as report:
            for done, name in enumerate(names, 1):
                rows.append(summary(divergence(name)))
                report(done, len(names))
        if self.as_json:
            print_json({"divergences": rows})
        else:
            terminal = console()
            terminal.print(list_table(rows, terminal.width))
        return 0


@dataclass(frozen=True)
class DeriveCommand:
    """What follows from a generator, the way a paper would show it.

    Example: bandtheory derive tv --latex
    """

    name: Name
    """Catalogue name, or an expression in u."""
    latex: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Print a LaTeX align* environment."""
    as_json: Json = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        if self.latex and self.as_json:
            raise UsageError("--latex and --json exclude each other (the JSON holds the LaTeX as well)")
        from bandtheory.derivation import derive
        from bandtheory.listings import derivation_dict

        derivation = derive(self.name.strip())
        if self.as_json:
            print_json(derivation_dict(derivation))
        else:
            print(derivation.latex().rstrip("\n") if self.latex else derivation)
        return 0


@dataclass(frozen=True)
class BoundsCommand:
    """The bounds on the ratio of new to old probability.

    Example: bandtheory bounds kl --delta 0.05 --p 0.001 0.1 0.9
    """

    name: Name
    """Catalogue name, or an expression in u."""
    delta: float = 0.05
    """Radius of the trust region in nats, at least 0."""
    p: Annotated[tuple[float, ...], tyro.conf.arg(metavar="P ...", help_behavior_hint="(default: a grid)")] = ()
    """Old probabilities in (0, 1]."""
    logp: Annotated[tuple[float, ...], tyro.conf.arg(metavar="LOGP ...", help_behavior_hint="")] = ()
    """Their logarithms instead (nats), accurate for any p."""
    max_ratio: Annotated[float, tyro.conf.arg(metavar="RATIO", help_behavior_hint="(default: no cap)")] = math.inf
    """Cap on the upper bound, at least 1."""
    as_json: Json = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        if self.p and self.logp:
            raise UsageError("--p and --logp exclude each other")
        import numpy as np

        from bandtheory.bounds import log_bounds
        from bandtheory.divergence import divergence
        from bandtheory.listings import bounds_table

        found = divergence(self.name.strip())
        given: dict[str, Any] = {"logp": self.logp} if self.logp else {"p": self.p or DEFAULT_PROBABILITIES}
        logs = log_bounds(**given, divergence=found, delta=self.delta, max_ratio=self.max_ratio)
        with np.errstate(over="ignore", under="ignore"):
            logp = np.asarray(self.logp) if self.logp else np.log(given["p"])
            columns = {
                "logp": logp,
                "p": np.exp(logp) if self.logp else np.asarray(given["p"]),
                "lower": np.exp(logs.lower),
                "upper": np.exp(logs.upper),
                "log_lower": logs.lower,
                "log_upper": logs.upper,
            }
        rows = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]
        result = {"divergence": found.name, "generator": found.expression, "delta": self.delta, "max_ratio": self.max_ratio}
        if self.as_json:
            print_json(result | {"evidence": logs.evidence, "rows": rows})
        else:
            terminal = console()
            terminal.print(bounds_table(result, logs.evidence, rows, terminal.width))
        return 0


@dataclass(frozen=True)
class AuditCommand:
    """What clip rules would have clipped in a file of tokens.

    Example: bandtheory audit example --rules clip band:kl:0.05:10
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """npz or safetensors file with arrays old_logp, new_logp, advantage and, if any, mask; or the word example."""
    rules: Rules = DEFAULT_RULES
    """Rules to compare."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also draw it, to a png, svg or pdf file."""
    as_json: Json = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        from bandtheory.audit import audit, example_path
        from bandtheory.plots import audit_figure, check_destination, save

        if self.plot is not None:
            check_destination(self.plot)  # before the work, not after it
        source = example_path() if self.file == "example" else Path(self.file)
        with progress("auditing") as report:
            result = audit(source, self.rules, progress=report)
        if self.file == "example":
            result = replace(result, source="example")  # not where the package happens to be installed
        if self.plot is not None:
            save(audit_figure(result), self.plot)
        if self.as_json:
            print_json(result.to_dict())
        else:
            _print(result, *_wrote(self.plot))
        return 0


@dataclass(frozen=True)
class PlotCommand:
    """Draw ratio bounds and allowed probability changes of rules, or a lookup table.

    Example: bandtheory plot --rules clip band:kl:0.05 --out a.png
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write (png, svg or pdf)."""
    rules: Rules = DEFAULT_RULES
    """Rules to compare."""
    show: Literal["both", "ratio", "change"] = "both"
    """Both figures side by side, or one of them."""
    table: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Draw this lookup table instead (safetensors or npz): both bounds, knots, and the certified error of each row."""

    def run(self) -> int:
        from bandtheory import plots

        plots.check_destination(self.out)
        if self.table is not None:
            if self.rules != DEFAULT_RULES or self.show != "both":
                raise UsageError("--table draws a table and no rules: it excludes --rules and --show")
            from bandtheory.radius_plots import radius_table_figure
            from bandtheory.table_files import load_table
            from bandtheory.table_plots import table_figure
            from bandtheory.tables import BandTable

            table = load_table(self.table)
            plots.save(table_figure(table) if isinstance(table, BandTable) else radius_table_figure(table), self.out)
            _print(*_wrote(self.out))
            return 0
        draw = {"both": plots.rules_figure, "ratio": plots.ratio_figure, "change": plots.probability_change_figure}
        plots.save(draw[self.show](self.rules), self.out)
        _print(*_wrote(self.out))
        return 0


COMMANDS: dict[str, type[Any]] = {
    "list": ListCommand,
    "derive": DeriveCommand,
    "bounds": BoundsCommand,
    "verify": VerifyCommand,
    "audit": AuditCommand,
    "plot": PlotCommand,
    "table": TableCommand,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; an error is one line on standard error."""
    given = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> int:
        if given == ["--version"]:
            print(f"{PROGRAM} {__version__}")
            return 0
        return int(read_arguments(PROGRAM, DESCRIPTION, COMMANDS, given).run())

    return exit_status(PROGRAM, command)


def _print(*parts: RenderableType) -> None:
    out = console()
    for part in parts:
        out.print(part)


def _wrote(path: Path | None) -> tuple[RenderableType, ...]:
    from rich.text import Text

    return () if path is None else (Text(f"wrote {path}"),)
