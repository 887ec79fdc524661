"""The C header: compiled and run, beside the table it was made from."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import bandtheory as bt
from bandtheory.table_header import evaluation_errors
from bandtheory.tables import BandTable

COMPILERS = {
    "c": ["gcc", "-x", "c", "-std=c99", "-pedantic", "-O0"],
    "c fused": ["gcc", "-x", "c", "-std=c99", "-pedantic", "-O3", "-march=native", "-ffp-contract=fast"],
    "c++": ["g++", "-x", "c++", "-std=c++11", "-pedantic", "-O2"],
    "cuda": ["nvcc", "-x", "cu", "-O2"],
}
STRICT = ["-Wall", "-Wextra", "-Werror"]
PROGRAM = """
#include <stdio.h>
#include "{name}.h"
#include "{name}.h"
int main(void)
{{
    float x, both[2];
    while (fread(&x, sizeof x, 1, stdin) == 1) {{
        {function}(x, both, both + 1);
        fwrite(both, sizeof *both, 2, stdout);
    }}
    return 0;
}}
"""


@pytest.fixture(
    scope="module", params=[("kl", 0.05, False), ("tv", 0.2, False), ("jensen_shannon", 0.05, True), ("kl", 0.05, True)]
)
def table(request) -> BandTable:
    name, delta, inside = request.param
    return BandTable.build(name, delta, inside=inside)


def _function(table: BandTable) -> str:
    return f"bandtheory_{table.divergence}_{table.delta}_log_bounds".replace(".", "_")


def _compiled(table: BandTable, compiler: str, folder: Path) -> Path:
    command = COMPILERS[compiler]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    table.save(folder / "band.h")
    source, program = folder / "main.c", folder / "main"
    source.write_text(PROGRAM.format(name="band", function=_function(table)))
    warnings = [] if compiler == "cuda" else STRICT
    subprocess.run([*command, *warnings, str(source), "-o", str(program), "-lm"], check=True, cwd=folder)
    return program


def _run(program: Path, logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    output = subprocess.run([str(program)], input=logp.astype(np.float32).tobytes(), capture_output=True, check=True).stdout
    lower, upper = np.frombuffer(output, np.float32).reshape(-1, 2).T.astype(np.float64)
    return lower, upper


def _inputs(table: BandTable) -> np.ndarray:
    """Knots and the floats beside them, random patterns, and ordinary probabilities."""
    generator = np.random.default_rng(3)
    knots = table.knots
    x = [knots, np.nextafter(knots, np.float32(0)), np.nextafter(knots, np.float32(np.inf))]
    x.append(generator.integers(0, int(knots[-1].view(np.int32)), 20000).astype(np.int32).view(np.float32))
    x.append(generator.uniform(0, 104, 20000).astype(np.float32))
    return -np.minimum(np.concatenate(x), knots[-1])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_floats_are_within_the_stated_error_of_the_table(table: BandTable, compiler: str, tmp_path: Path) -> None:
    logp = _inputs(table)
    found = _run(_compiled(table, compiler, tmp_path), logp)
    exact = table.log_bounds(logp.astype(np.float64))
    row = np.searchsorted(table.knots[1:-1], -logp, side="right")
    allowed = evaluation_errors(table)[row].T * (3 if table.inside else 1) + 1e-14 * np.abs(
        np.nan_to_num(list(exact), neginf=0)
    )
    for side, (computed, bound) in enumerate(zip(found, exact, strict=True)):
        assert (np.isneginf(computed) == np.isneginf(bound)).all()
        finite = np.isfinite(bound)
        assert (np.abs(computed[finite] - bound[finite]) <= allowed[side][finite]).all()
        if table.inside:
            assert (np.abs(computed) <= np.abs(bound)).all()


def test_results_of_an_inside_table_are_certified_inside(tmp_path: Path) -> None:
    table = BandTable.build("tv", 0.05, inside=True, max_error=1e-5, logp_min=-20.0)
    logp = np.random.default_rng(4).choice(_inputs(table), 60)
    for side, computed in zip(("lower", "upper"), _run(_compiled(table, "c fused", tmp_path), logp), strict=True):
        finite = np.isfinite(computed)
        made = bt.certify(logp[finite].astype(float), None, "tv", 0.05, side, log_ratio=computed[finite], tolerance=1e-300)
        assert set(made.verdict) <= {"inside", "on"}


def test_hostile_inputs(table: BandTable, tmp_path: Path) -> None:
    logp = np.array([0.0, -0.0, 1.0, math.inf, -math.inf, -1e30, -105.0, math.nan, -1e-45, -1e-38], np.float32)
    lower, upper = _run(_compiled(table, "c", tmp_path), logp)
    at_zero, at_end = table.log_bounds(0.0), table.log_bounds(-104.0)
    for computed, zero, end in ((lower, at_zero.lower, at_end.lower), (upper, at_zero.upper, at_end.upper)):
        assert np.allclose(computed[:4], zero, rtol=1e-6, atol=1e-6)
        assert (computed[4:7] == computed[4]).all() and np.allclose(computed[4], end, rtol=1e-6)
        assert np.isnan(computed[7]) and np.allclose(computed[8:], zero, rtol=1e-6, atol=1e-5)


def test_two_headers_in_two_translation_units(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    settings = {"max_error": 1e-3, "logp_min": -8.0}
    for name in ("kl", "tv"):
        BandTable.build(name, 0.05, **settings).save(tmp_path / f"{name}.h")
    includes = '#include "kl.h"\n#include "tv.h"\n'
    (tmp_path / "one.c").write_text(
        includes + "float one(float x) { float l, u; bandtheory_kl_0_05_log_bounds(x, &l, &u); return u; }\n"
    )
    (tmp_path / "two.c").write_text(
        includes + "float one(float); int main(void) { float l, u; bandtheory_tv_0_05_log_bounds(-1, &l, &u);"
        " return one(-1) > 0 && u > 0 ? 0 : 1; }\n"
    )
    subprocess.run(["gcc", *STRICT, "-std=c99", "one.c", "two.c", "-o", "both", "-lm"], check=True, cwd=tmp_path)
    subprocess.run([str(tmp_path / "both")], check=True)


def test_a_typed_generator_cannot_end_the_comment(tmp_path: Path) -> None:
    table = BandTable.build("(u - 1)**2*1", 0.05, max_error=1e-3, logp_min=-8.0)
    table.save(tmp_path / "band.h")
    text = (tmp_path / "band.h").read_text()
    assert text.count("*/") == text.count("/*")
