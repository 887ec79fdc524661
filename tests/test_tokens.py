"""Token files: both formats, every accepted type and shape, and one clear error for everything else."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from bandtheory.audit import AuditError, audit

Arrays = dict[str, np.ndarray]
Save = Callable[[Path, Arrays], Path]


def arrays(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(2.0, (17, 23)).astype(np.float32)
    new = np.minimum(old + rng.normal(0, 0.3, old.shape), 0).astype(np.float32)
    return {"old_logp": old, "new_logp": new, "mask": rng.random(old.shape) < 0.7, "advantage": rng.normal(0, 1, 17)}


def stored(folder: Path, content: Arrays) -> Path:
    np.savez(folder / "tokens.npz", **content)  # type: ignore[arg-type]
    return folder / "tokens.npz"


def deflated(folder: Path, content: Arrays) -> Path:
    np.savez_compressed(folder / "tokens.npz", **content)  # type: ignore[arg-type]
    return folder / "tokens.npz"


def safe(folder: Path, content: Arrays) -> Path:
    safetensors.numpy.save_file(content, folder / "tokens.safetensors")
    return folder / "tokens.safetensors"


FORMATS = pytest.mark.parametrize("save", [stored, deflated, safe])


def refusal(source: object, **options: int) -> str:
    """The message of the AuditError, which must be one line of moderate length."""
    with pytest.raises(AuditError) as caught:
        audit(source, ["clip"], **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


@FORMATS
@pytest.mark.parametrize("chunk", [1, 10, 23, 24, 10_000])
def test_a_file_streams_to_the_same_report_as_arrays_in_memory(save: Save, chunk: int, tmp_path: Path) -> None:
    content = arrays()
    assert (
        audit(save(tmp_path, content), ["clip"], chunk_tokens=chunk).rules == audit(content, ["clip"], chunk_tokens=chunk).rules
    )


@FORMATS
@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_float_types(save: Save, dtype: str, tmp_path: Path) -> None:
    content = {name: value.astype(dtype) if name != "mask" else value for name, value in arrays().items()}
    wide = {name: value.astype(float) if name != "mask" else value for name, value in content.items()}
    assert audit(save(tmp_path, content), ["clip"]).rules == audit(wide, ["clip"]).rules


@pytest.mark.parametrize("dtype", [">f4", np.longdouble])
def test_big_endian_and_long_double_arrays_of_npz(dtype: str, tmp_path: Path) -> None:
    content = arrays() | {"old_logp": arrays()["old_logp"].astype(dtype)}
    assert audit(stored(tmp_path, content), ["clip"]).rules == audit(arrays(), ["clip"]).rules


def test_bfloat16_is_read_from_its_bits(tmp_path: Path) -> None:
    """−1.5, −0.25 and −3.140625 have at most eight significant bits; 0xBFC0, 0xBE80, 0xC049 are the upper halves of float32."""
    values = np.array([-1.5, -0.25, -3.140625], np.float32)
    bits = np.array([0xBFC0, 0xBE80, 0xC049], np.uint16)
    content = {"old_logp": bits, "new_logp": bits, "advantage": np.ones(3, np.float32)}
    blob = safetensors.numpy.save(content).replace(b'"U16"', b'"BF16"')
    length = int.from_bytes(blob[:8], "little")  # two more letters than padding had room for: rewrite the length
    grown = len(blob) - len(safetensors.numpy.save(content))
    (tmp_path / "x.safetensors").write_bytes((length + grown).to_bytes(8, "little") + blob[8:])
    wide = {"old_logp": values, "new_logp": values, "advantage": np.ones(3)}
    assert audit(tmp_path / "x.safetensors", ["clip"]).bins == audit(wide, ["clip"]).bins


@FORMATS
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_masks_of_zeros_and_ones_of_any_type(save: Save, dtype: type, tmp_path: Path) -> None:
    content = arrays() | {"mask": arrays()["mask"].astype(dtype)}
    assert audit(save(tmp_path, content), ["clip"]).rules == audit(arrays(), ["clip"]).rules


def test_arrays_in_fortran_order(tmp_path: Path) -> None:
    content = arrays() | {"old_logp": np.asfortranarray(arrays()["old_logp"])}
    assert audit(stored(tmp_path, content), ["clip"], chunk_tokens=10).rules == audit(arrays(), ["clip"], chunk_tokens=10).rules


def test_advantages_is_another_name_for_advantage(tmp_path: Path) -> None:
    content = arrays()
    content["advantages"] = content.pop("advantage")
    assert audit(stored(tmp_path, content), ["clip"]).rules == audit(arrays(), ["clip"]).rules
    assert "one of them" in refusal(content | {"advantage": content["advantages"]})


def test_other_arrays_are_ignored_even_if_pickled(tmp_path: Path) -> None:
    content = arrays() | {"prompts": np.array([{"text": "1+1"}], object)}
    assert audit(stored(tmp_path, content), ["clip"]).rules == audit(arrays(), ["clip"]).rules


@FORMATS
@pytest.mark.parametrize("name", ["old_logp", "new_logp", "advantage"])
def test_a_missing_array_is_named(save: Save, name: str, tmp_path: Path) -> None:
    content = {key: value for key, value in arrays().items() if key != name}
    assert f"missing array '{name}'" in refusal(save(tmp_path, content))


@pytest.mark.parametrize(
    ("name", "shape", "accepted"),
    [
        ("old_logp", (17, 23, 1), r"(B, T) or (N,)"),
        ("old_logp", (), r"(B, T) or (N,)"),
        ("old_logp", (0, 23), "no token"),
        ("new_logp", (23, 17), "(17, 23), the shape of old_logp"),
        ("new_logp", (391,), "(17, 23), the shape of old_logp"),
        ("mask", (17,), "(17, 23), the shape of old_logp"),
        ("advantage", (23,), "(17,) or (17, 1) or (17, 23)"),
        ("advantage", (1, 23), "(17,) or (17, 1) or (17, 23)"),
        ("advantage", (), "(17,) or (17, 1) or (17, 23)"),
    ],
)
@FORMATS
def test_a_wrong_shape_is_named_with_what_is_accepted(
    save: Save, name: str, shape: tuple[int, ...], accepted: str, tmp_path: Path
) -> None:
    message = refusal(save(tmp_path, arrays() | {name: np.zeros(shape, np.float32)}))
    assert f"{name} has shape {shape}" in message
    assert accepted in message


@FORMATS
@pytest.mark.parametrize(
    ("name", "index", "value", "text"),
    [
        ("old_logp", (3, 7), np.nan, "old_logp[3, 7] = nan"),
        ("new_logp", (16, 22), np.nan, "new_logp[16, 22] = nan"),
        ("old_logp", (0, 1), 0.5, "old_logp[0, 1] = 0.5"),
        ("new_logp", (5, 0), np.inf, "new_logp[5, 0] = inf"),
        ("old_logp", (5, 0), -np.inf, "old_logp[5, 0] = -inf"),
        ("advantage", (4,), np.nan, "advantage[4] = nan"),
        ("advantage", (4,), -np.inf, "advantage[4] = -inf"),
        ("mask", (2, 2), 0.5, "mask[2, 2] = 0.5"),
        ("mask", (2, 2), np.nan, "mask[2, 2] = nan"),
    ],
)
def test_a_wrong_value_is_named_with_its_index(
    save: Save, name: str, index: tuple[int, ...], value: float, text: str, tmp_path: Path
) -> None:
    content = {key: array.astype(np.float32) for key, array in arrays().items()} | {"mask": np.ones((17, 23), np.float32)}
    content[name][index] = value
    assert text in refusal(save(tmp_path, content), chunk_tokens=40)


def test_a_damaged_boolean_is_refused(tmp_path: Path) -> None:
    mask = np.ones((17, 23), np.uint8)
    mask[1, 2] = 255
    assert "mask[1, 2] = 255; accepted: 0 or 1" in refusal(safe(tmp_path, arrays() | {"mask": mask.view(bool)}))


def test_log_probabilities_just_above_zero_count_as_zero() -> None:
    """A float32 log-softmax can round to 1e-7 above 0; beyond 1e-3 it is no rounding."""
    source = {"old_logp": np.array([9e-4]), "new_logp": np.array([-0.5]), "advantage": np.array([-1.0])}
    zero = source | {"old_logp": np.array([0.0])}
    assert audit(source, ["clip"]) == audit(zero, ["clip"])
    assert "old_logp[0] = 0.0011" in refusal(source | {"old_logp": np.array([0.0011])})


def test_no_valid_position_and_an_overflowing_mass_are_refused() -> None:
    assert "mask has no valid position" in refusal(arrays() | {"mask": np.zeros((17, 23))})
    assert "overflows" in refusal(arrays() | {"advantage": np.full(17, 1e308)})


@pytest.mark.parametrize(
    ("name", "dtype", "reason"),
    [
        ("old_logp", object, "pickled Python objects"),
        ("advantage", object, "pickled Python objects"),
        ("old_logp", np.int32, "a float type"),
        ("new_logp", np.complex64, "real numbers"),
        ("mask", "U1", "real numbers"),
        ("advantage", [("a", "<f4")], "real numbers"),
    ],
)
def test_a_wrong_type_is_refused_without_unpickling(name: str, dtype: object, reason: str, tmp_path: Path) -> None:
    content = arrays() | {name: np.zeros(arrays()[name].shape, dtype)}  # type: ignore[call-overload]
    message = refusal(stored(tmp_path, content))
    assert repr(name) in message or name in message
    assert reason in message


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('code from a data file ran')",))


def test_an_array_whose_pickle_would_run_code_is_refused(tmp_path: Path) -> None:
    bomb = np.array([_Bomb()], object)
    assert "pickled" in refusal(stored(tmp_path, arrays() | {"advantage": bomb}))


@FORMATS
@pytest.mark.parametrize("percent", range(0, 100, 10))
def test_truncated_files_are_refused(save: Save, percent: int, tmp_path: Path) -> None:
    path = save(tmp_path, arrays())
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * percent // 100])
    assert "empty" in refusal(path) if percent == 0 else "truncated or damaged" in refusal(path)


@pytest.mark.parametrize("save", [stored, deflated])
def test_a_flipped_byte_of_npz_data_is_found_by_its_checksum(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path, arrays())
    content = bytearray(path.read_bytes())
    content[1000] ^= 1  # inside old_logp
    path.write_bytes(content)
    assert "damaged" in refusal(path)


@FORMATS
def test_random_damage_gives_a_report_or_an_audit_error(save: Save, tmp_path: Path) -> None:
    path = save(tmp_path, arrays())
    content = np.frombuffer(path.read_bytes(), np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = content.copy()
        head = rng.integers(0, 400) if rng.random() < 0.5 else content.size - rng.integers(1, 400)
        damaged[[head, rng.integers(content.size)]] = rng.integers(0, 256, 2)
        path.write_bytes(damaged.tobytes())
        try:
            audit(path, ["none"])
        except AuditError as error:
            assert "\n" not in str(error)


def test_a_header_that_promises_more_than_the_member_holds_is_refused(tmp_path: Path) -> None:
    """A terabyte by its header, a few bytes in truth: nothing of the promised size is allocated."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("old_logp", "new_logp", "advantage"):
            member = io.BytesIO()
            np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (2**38,)})
            archive.writestr(f"{name}.npy", member.getvalue() + b"1234")
    assert "do not hold (274877906944,) float32" in refusal(tmp_path / "x.npz")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "single .npy array" in refusal(tmp_path / "x.npy")
    path.write_bytes(pickle.dumps({"old_logp": [1.0]}))
    assert "is a pickle" in refusal(path)
    path.write_text("old_logp,new_logp\n-1,-1\n")
    assert "unknown format" in refusal(path)
    assert "is a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent.npz")
    assert "missing array 'old_logp'; found: nothing" in refusal(stored(tmp_path, {}))
