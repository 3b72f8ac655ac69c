"""A table like those of passengers: numbers with gaps, categories, names, an id; and plain baselines."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def passengers(rows: int = 700, seed: int = 0) -> dict[str, list[str]]:
    """Columns of texts. Who survived depends on sex, class, age and chance."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(["first", "second", "third"], rows, p=[0.25, 0.2, 0.55])
    male = rng.random(rows) < 0.65
    age = np.maximum(1, rng.normal(30, 14, rows)).round()
    logit = 1.2 - 2.6 * male - 0.9 * (classes == "third") + 0.9 * (classes == "first") + 2.0 * (age < 12)
    fate = np.where(rng.random(rows) < 1 / (1 + np.exp(-logit)), "saved", "lost")
    return {
        "PassengerId": [str(k + 1) for k in range(rows)],
        "class": classes.tolist(),
        "name": [f"{'Mr' if m else 'Mrs'}. {rng.choice(['Ann', 'Kim', 'Lee'])} the {k}th" for k, m in enumerate(male)],
        "sex": np.where(male, "male", "female").tolist(),
        "age": ["" if rng.random() < 0.2 else f"{a:g}" for a in age],
        "fare [pound]": [f"{x:.2f}" for x in np.exp(rng.normal(3, 0.6, rows))],
        "boarded": [f"1912-04-{d:02d}" for d in rng.integers(1, 12, rows)],
        "ship": ["Titanic"] * rows,
        "fate": fate.tolist(),
    }


def write_csv(path: Path, columns: dict[str, list[str]], rows: slice = slice(None)) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(list(zip(*columns.values(), strict=True))[rows])


def logistic_regression(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Probabilities of class 1 by Newton's method with a slight penalty, on standardized columns."""
    mean, deviation = x.mean(0), np.maximum(x.std(0), 1e-9)
    a, b = (np.c_[np.ones(len(part)), (part - mean) / deviation] for part in (x, x_test))
    w = np.zeros(a.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-a @ w))
        gradient = a.T @ (y - p) - w
        w += np.linalg.solve((a * (p * (1 - p))[:, None]).T @ a + np.eye(len(w)), gradient)
    return 1 / (1 + np.exp(-b @ w))


def least_squares(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """A linear model's predictions."""
    a, b = (np.c_[np.ones(len(part)), part] for part in (x, x_test))
    return b @ np.linalg.lstsq(a, y, rcond=None)[0]


ROWS, NEW = slice(0, 700), slice(700, 1000)  # to train on, and others
COLUMNS = passengers(1000)
