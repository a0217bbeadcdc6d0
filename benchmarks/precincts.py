"""Ecological inference: parties of voters by race, from totals of precincts alone.

Run with ``python -m benchmarks.precincts --data FILE``: `senc.tab` of R's eiPack, 212 precincts of
North Carolina with the true tables. A precinct is a bag of three rows, one for each race, that
count its voters; its label are the shares of three parties. Beside the fits are Goodman's
regression of shares on shares, and the bounds that no table can leave (Duncan and Davis 1953).
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bagwise as bw

RACES, PARTIES = ("white", "black", "natam"), ("dem", "rep", "non")


def bounds(races: np.ndarray, parties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the most that each race's shares can be, (3, 3) both."""
    total = races.sum(axis=1)[:, None, None]
    race, party = races[:, :, None], parties[:, None, :]
    low = np.maximum(0, race + party - total).sum(axis=0)
    high = np.minimum(race, party).sum(axis=0)
    voters = races.sum(axis=0)[:, None]
    return low / voters, high / voters


def fitted(features: np.ndarray, shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return each race's shares of parties, by a fit to precincts."""
    n = len(shares)
    bags, labels = np.repeat(np.arange(n), 3), np.repeat(shares, 3, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        model = bw.BaggedGLM("multinomial").fit(features, labels, bags=bags, counts=counts)
    voters = (counts[:, None] * model.predict(features)).reshape(n, 3, 3).sum(axis=0)
    return voters / voters.sum(axis=1, keepdims=True)


def main() -> None:
    """Print estimates of nine shares, their mean absolute error, and bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    table = pd.read_csv(parser.parse_args().data, sep=" ")
    races, parties = (table[list(names)].to_numpy(float) for names in (RACES, PARTIES))
    total, prefixes = races.sum(axis=1, keepdims=True), ("wh", "bl", "natam")
    truth = np.array([[table[f"{r}{p}"].sum() for p in PARTIES] for r in prefixes], dtype=float)
    truth /= truth.sum(axis=1, keepdims=True)
    shares, n = parties / total, len(table)
    rows = np.tile(np.eye(3)[:, 1:], (n, 1))
    county = np.repeat(pd.get_dummies(table.county).to_numpy(float)[:, 1:], 3, axis=0)
    root = np.sqrt(total)
    low, high = bounds(races, parties)
    ways = {
        "truth": truth,
        "bounds, low": low,
        "bounds, high": high,
        "Goodman": np.linalg.lstsq(races / total, shares)[0],
        "Goodman, by size": np.linalg.lstsq(races / total * root, shares * root)[0],
        "race": fitted(rows, shares, races.ravel()),
        "race and county": fitted(np.hstack([rows, county]), shares, races.ravel()),
    }
    names = [f"{race}:{party}" for race in RACES for party in PARTIES]
    printed = pd.DataFrame({way: cells.ravel() for way, cells in ways.items()}, index=names).T
    printed["mean abs. error"] = [np.abs(cells - truth).mean() for cells in ways.values()]
    inside = [bool(((low <= cells) & (cells <= high)).all()) for cells in ways.values()]
    printed["within bounds"] = inside
    print(printed.round(4).to_string())


if __name__ == "__main__":
    main()
