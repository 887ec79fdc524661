"""All planted faults and the control group, by name."""

from __future__ import annotations

from bandtheory.catalogue import examples
from benchmarks.planted.by_confusion import CONFUSION_FAULTS
from benchmarks.planted.controls import CONTROLS
from benchmarks.planted.fault import Fault
from benchmarks.planted.in_arithmetic import ARITHMETIC_FAULTS
from benchmarks.planted.in_bounds import BOUND_FAULTS
from benchmarks.planted.in_derivations import DERIVATION_FAULTS
from benchmarks.planted.in_generators import GENERATOR_FAULTS

FAULTS = (*GENERATOR_FAULTS, *DERIVATION_FAULTS, *BOUND_FAULTS, *ARITHMETIC_FAULTS, *CONFUSION_FAULTS)
PLANTED: dict[str, Fault] = {fault.name: fault for fault in (*FAULTS, *CONTROLS)}


def group(fault: Fault) -> str:
    """The divergence of the catalogue that a fault is about; "generators" for a generator that is itself the fault."""
    return fault.divergence if fault.divergence in examples() else "generators"
