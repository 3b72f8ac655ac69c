"""Computes the values of the template of a report."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.tabular.measures import calibration, calibration_error, confusion

if TYPE_CHECKING:
    from ztorch.commands.report_data import EvaluatedRows
    from ztorch.program.program import Program

WORST_ROWS = 12  # number of rows with the largest losses that are shown
MAX_CLASSES = 30  # largest number of classes with a confusion matrix
WIDTH, HEIGHT = 420, 180  # size of a chart in pixels


def page_values(evaluated: EvaluatedRows) -> dict[str, Any]:
    """The values of the template `report.html` that come from a program and its predictions."""
    program = evaluated.program
    name = f"{program.name}: {evaluated.output}" if evaluated.output else program.name
    worst = _worst(evaluated)
    return {"name": name, "device": program.device, "rows": len(evaluated.truth),
            **_scores(evaluated), "curves": _curves(program), "worst": worst,
            "gallery": all(row["picture"] and not row["text"] for row in worst),
            "importance": _importance(evaluated), "plans": _plans(program), "width": WIDTH,
            "height": HEIGHT}


def _scores(evaluated: EvaluatedRows) -> dict[str, Any]:
    """The scores as text, and for classes the confusion matrix and the calibration."""
    truth, target = evaluated.truth, evaluated.target
    if not target.classes:
        error = evaluated.outputs.reshape(len(truth), -1) - truth.reshape(len(truth), -1)
        spread = float(np.square(truth - truth.mean(0)).mean()) or 1.0
        unit = f" {target.unit}" if target.unit else ""
        square = float(np.square(error).mean())
        return {"scores": [("mean absolute error", f"{np.abs(error).mean():.3g}{unit}"),
                           ("root of the mean square", f"{square**0.5:.3g}{unit}"),
                           ("explained variance (R²)", f"{1 - square / spread:.3f}")],
                "matrix": [], "classes": [], "calibration": [], "calibration_error": 0.0}
    predicted, bins = evaluated.outputs.argmax(1), calibration(truth, evaluated.outputs)
    usual = int(np.bincount(truth).argmax())
    error_of_bins = calibration_error(bins)
    small = len(target.classes) <= MAX_CLASSES
    matrix = confusion(truth, predicted, len(target.classes)) if small else np.zeros((0, 0), int)
    most = max(1, int(matrix.max(initial=1)))
    return {"scores": [("accuracy", f"{np.mean(predicted == truth):.1%}"),
                       (f"always {target.classes[usual]}", f"{np.mean(truth == usual):.1%}"),
                       ("log loss", f"{evaluated.losses.mean():.3g}"),
                       ("calibration error", f"{error_of_bins:.1%}")],
            "matrix": [(target.classes[k], [(int(n), round(float(n) / most, 3)) for n in row])
                       for k, row in enumerate(matrix)],
            "classes": target.classes if small else [], "calibration": bins,
            "calibration_error": error_of_bins}


def _curves(program: Program) -> list[dict[str, Any]]:
    """A chart for each score of training, with a second line for that of validation."""
    history = program.history.curves if "train" in program.executable.functions else {}
    charts = []
    for name in (n for n in history if not n.startswith("val_")):
        lines = {label: history[label] for label in (name, f"val_{name}") if label in history}
        values = [v for line in lines.values() for v in line if np.isfinite(v)]
        if len(history[name]) < 2 or not values:
            continue
        low, high = min(values), max(values)
        span = (high - low) or 1.0
        charts.append({"name": name, "low": f"{low:.3g}", "high": f"{high:.3g}",
                       "epochs": len(history[name]), "lines": [
                           (label, " ".join(
                               f"{WIDTH * k / max(len(line) - 1, 1):.1f},"
                               f"{HEIGHT * (high - v) / span:.1f}"
                               for k, v in enumerate(line) if np.isfinite(v)))
                           for label, line in lines.items()]})
    return charts


def _worst(evaluated: EvaluatedRows) -> list[dict[str, Any]]:
    """The rows with the largest loss; for classes only those with a wrong prediction."""
    losses, predictions = evaluated.losses, evaluated.predictions
    order = np.argsort(-losses, kind="stable")
    if evaluated.target.classes:
        order = order[predictions.values[order] != evaluated.truth[order]]
    rows = []
    for row in map(int, order[:WORST_ROWS]):
        text, picture = evaluated.shown(row)
        rows.append({"place": evaluated.place(row), "text": text, "picture": picture,
                     "truth": evaluated.true_name(row), "predicted": predictions.best(row),
                     "loss": f"{losses[row]:.3g}"})
    return rows


def _importance(evaluated: EvaluatedRows) -> list[tuple[str, str, float]]:
    """The columns, how much the loss grows without each, and the length of its bar."""
    importance = evaluated.importance()
    most = max(importance.values(), default=0.0)
    return [(name, f"{value:+.4f}", round(max(value, 0.0) / most, 3) if most > 0 else 0.0)
            for name, value in importance.items()]


def _plans(program: Program) -> list[tuple[str, str]]:
    """Pictures of kernels and memory for `src` of images; none without matplotlib."""
    pictures: list[tuple[str, str]] = []
    for function in ("predict", "train"):
        if function in program.executable.functions:
            try:
                figure = program.plot(function=function)
            except ConfigError:  # no matplotlib, or the function carries no plan
                continue
            image = io.BytesIO()
            figure.savefig(image, format="svg", transparent=True)
            encoded = base64.b64encode(image.getvalue()).decode()
            pictures.append((function, f"data:image/svg+xml;base64,{encoded}"))
    return pictures
