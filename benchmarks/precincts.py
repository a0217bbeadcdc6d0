"""Ecological inference: parties of voters by race, from totals of precincts alone.

Run with ``python -m benchmarks.precincts --data FILE``: `senc.tab` of R's eiPack, 212 precincts of
North Carolina with the true tables. A precinct is a bag of three rows, one for each race, that
count its voters; its label are the shares of three parties. Beside `cross_table`, with its bounds
and intervals, is Goodman's regression of shares on shares.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from bagwise.learn.cross_tables import cross_table

RACES, PARTIES = ("white", "black", "natam"), ("dem", "rep", "non")


def main() -> None:
    """Print estimates of nine shares, their mean absolute error, and bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    table = pd.read_csv(parser.parse_args().data, sep=" ")
    races, parties = (table[list(names)].to_numpy(float) for names in (RACES, PARTIES))
    total, prefixes = races.sum(axis=1, keepdims=True), ("wh", "bl", "natam")
    truth = np.array([[table[f"{r}{p}"].sum() for p in PARTIES] for r in prefixes], dtype=float)
    truth /= truth.sum(axis=1, keepdims=True)
    shares = parties / total
    county = pd.get_dummies(table.county).to_numpy(float)[:, 1:]
    root = np.sqrt(total)
    by_race = cross_table(races, parties)
    by_county = cross_table(races, parties, features=county)
    ways = {
        "truth": truth,
        "bounds, low": by_race.least,
        "bounds, high": by_race.most,
        "Goodman": np.linalg.lstsq(races / total, shares)[0],
        "Goodman, by size": np.linalg.lstsq(races / total * root, shares * root)[0],
        "race": by_race.estimate,
        "race and county": by_county.estimate,
        "interval, low": by_county.low,
        "interval, high": by_county.high,
    }
    names = [f"{race}:{party}" for race in RACES for party in PARTIES]
    printed = pd.DataFrame({way: cells.ravel() for way, cells in ways.items()}, index=names).T
    printed["mean abs. error"] = [np.abs(cells - truth).mean() for cells in ways.values()]
    print(printed.round(4).to_string())


if __name__ == "__main__":
    main()
