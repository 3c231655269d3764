"""The built-in model's weights in int8, with what was measured once of the numbers that they are multiplied with.

Some channels of a layer's input are a hundred times larger than others, so one scale for all of them would leave the others no digits. Each
channel is divided by a factor of its own, and the weights that it meets are multiplied with it: the product stays, the range shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

CALIBRATION = Path(__file__).with_name("granite-int8.npz")
LAST = 5
LINEAR = tuple(
    f"l{layer}.{part}"
    for layer in range(LAST + 1)
    for part in (("q", "kv") if layer == LAST else ("qkv",)) + ("ao", "f1", "f2")
)
"""The layers' products, by the names of their weights."""

_STEPS = 127  # of a weight, on each side of zero


@dataclass(frozen=True, slots=True)
class Measured:
    """How the input of one product is made small: a factor for each channel, then one scale and a zero for all."""

    factors: NDArray[Any]
    scale: float
    zero: int


def read_calibration() -> dict[str, Measured]:
    """Read what `scripts/calibrate_int8.py` has measured."""
    import numpy as np

    with np.load(CALIBRATION) as data:
        return {
            name: Measured(
                data[f"{name}.factors"].astype(np.float32),
                float(data[f"{name}.scale"]),
                int(data[f"{name}.zero"]),
            )
            for name in LINEAR
        }


def quantised(
    weights: Mapping[str, NDArray[Any]], calibration: Mapping[str, Measured]
) -> dict[str, NDArray[Any]]:
    """Return the weights as the int8 graph names them; the same numbers on every machine."""
    import numpy as np

    found = {name: value for name, value in weights.items() if name.rpartition(".")[0] not in LINEAR}
    linear = {f"{name}.{part}": weights[f"{name}.{part}"].copy() for name in LINEAR for part in "wb"}
    for name in LINEAR:
        if name.endswith(".ao"):
            _divide_values(linear, name, calibration[name].factors)
    for name in LINEAR:
        measured = calibration[name]
        smooth = linear[f"{name}.w"] * measured.factors
        scales = np.abs(smooth).max(axis=1) / np.float32(_STEPS)
        rows = np.rint(smooth / scales[:, None]).astype(np.int8)
        found[f"{name}.w8"] = np.ascontiguousarray(rows.T)
        found[f"{name}.scales"] = scales
        found[f"{name}.b"] = linear[f"{name}.b"]
        if not name.endswith(".ao"):
            found[f"{name}.inverse"] = np.float32(1) / measured.factors
    return found


def _divide_values(linear: dict[str, NDArray[Any]], name: str, factors: NDArray[Any]) -> None:
    """Make attention's output small where it is made: it is a mean of values, so dividing these divides it."""
    layer = name.removesuffix(".ao")
    source = f"{layer}.kv" if layer == f"l{LAST}" else f"{layer}.qkv"
    size = len(factors)
    linear[f"{source}.w"][-size:] /= factors[:, None]
    linear[f"{source}.b"][-size:] /= factors
