"""Public tables that others have printed figures for, read from files outside of bagwise."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bagwise._types import FloatArray


@dataclass(frozen=True)
class Outside:
    """One draw of a table: rows to learn from and rows to predict.

    Attributes
    ----------
    bounds : (low, high)
        Public range of a label.
    measure : str
        "mse", "auc" or "deviance".
    exposure : str or None
        The column that labels are counted over.
    """

    name: str
    train: pa.Table
    test: pa.Table
    label: str
    bounds: tuple[float, float]
    family: str
    measure: str
    exposure: str | None = None

    @property
    def features(self) -> list[str]:
        """Names of the columns that a model may use."""
        return [n for n in self.train.column_names if n not in (self.label, self.exposure)]

    def labels(self, table: pa.Table) -> FloatArray:
        """Return the labels of a part."""
        return table[self.label].to_numpy().astype(np.float64)


def _split(frame: pd.DataFrame, seed: int, **about: Any) -> Outside:
    """Hold out a fifth of the rows, as the printed figures do."""
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = len(frame) // 5
    train, test = (
        pa.Table.from_pandas(frame.iloc[part].reset_index(drop=True), preserve_index=False)
        for part in (order[cut:], order[:cut])
    )
    return Outside(train=train, test=test, **about)


def housing(folder: Path, seed: int) -> Outside:
    """Prices in blocks of California, in 100,000 dollars, with the columns of scikit-learn."""
    raw = pd.read_csv(folder / "housing.csv")
    rooms = raw["total_bedrooms"].fillna(raw["total_bedrooms"].median())
    frame = pd.DataFrame(
        {
            "income": raw["median_income"],
            "age": raw["housing_median_age"],
            "rooms": raw["total_rooms"] / raw["households"],
            "bedrooms": rooms / raw["households"],
            "population": raw["population"],
            "occupancy": raw["population"] / raw["households"],
            "latitude": raw["latitude"],
            "longitude": raw["longitude"],
            "price": raw["median_house_value"] / 1e5,
        }
    )
    about = {"label": "price", "bounds": (0.0, 5.0), "family": "gaussian", "measure": "mse"}
    return _split(frame, seed, name="housing", **about)


def crime(folder: Path, seed: int) -> Outside:
    """Violent crimes in communities, without the columns that the printed figures leave out."""
    raw = pd.read_csv(folder / "communities.data", na_values="?")
    gone = ["state", "county", "community", "communityname", "fold", "racepctblack"]
    frame = raw.drop(columns=[name for name in gone if name in raw])
    if "OtherPerCap" in frame:
        frame["OtherPerCap"] = frame["OtherPerCap"].fillna(frame["OtherPerCap"].mean())
    frame = frame.dropna(axis=1).astype(float)
    about = {"bounds": (0.0, 1.0), "family": "gaussian", "measure": "mse"}
    return _split(frame, seed, name="crime", label="ViolentCrimesPerPop", **about)


def bank(folder: Path, seed: int) -> Outside:
    """Answers to a bank's calls, in the split that comes with LLP-BP; the seed changes nothing."""
    del seed

    def part(*names: str) -> pa.Table:
        X, y = (
            pd.concat([pd.read_csv(folder / "bank" / f"{kind}_{name}.csv") for name in names])
            for kind in ("x", "y")
        )
        X.columns = [f"x{i}" for i in range(X.shape[1])]
        return pa.Table.from_pandas(
            X.assign(y=y.to_numpy()[:, 0].astype(float)), preserve_index=False
        )

    return Outside("bank", part("train"), part("test"), "y", (0.0, 1.0), "bernoulli", "auc")


def insurance(file: Path, seed: int) -> Outside:
    """Claims of Australian car policies over years of exposure (`ausprivauto0405`)."""
    raw = _read_rda(file) if file.suffix == ".rda" else pd.read_parquet(file)
    frame = raw.drop(columns=["ClaimOcc", "ClaimAmount"]).astype(
        dict.fromkeys(("VehAge", "VehBody", "Gender", "DrivAge"), str)
    )
    about = {"label": "ClaimNb", "bounds": (0.0, 4.0), "family": "poisson"}
    return _split(frame, seed, name="insurance", measure="deviance", exposure="Exposure", **about)


def _read_rda(file: Path) -> pd.DataFrame:
    import pyreadr  # only for this file, so in no group: pip install pyreadr

    return next(iter(pyreadr.read_r(str(file)).values()))
