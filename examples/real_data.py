"""Visits to a doctor: from a table of people to a model that the custodian evaluates.

Run it with ``python examples/real_data.py``. It writes nothing. Needs statsmodels
for the data.
"""

import pandas as pd
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.datasets import randhie

import bagwise as bw

BOUNDS = (0, 40)  # visits in a year; public bounds, larger numbers are clipped


def learn(release: bw.Release) -> None:
    """Choose a model without row labels, and print it."""
    X, y, _ = release.training_data()
    X = pd.DataFrame(X, columns=release.encoder.feature_names)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), bw.BaggedGLM("poisson")),
            {"baggedglm__ridge": [0.0, 0.01, 0.1, 1.0]},
            cv=bw.BagKFold(5, random_state=0),
            scoring=bw.bag_scorer("deviance", family="poisson"),
        ).fit(X, y, **release.fit_params())
    print(f"\n{release}\nridge by cross-validation on bags: {search.best_params_}")
    print(bw.BaggedGLM("poisson").fit(X, y, **release.fit_params()).summary())


def main() -> None:
    """Release the table twice, learn from bags, and let the custodian evaluate the result."""
    visits = randhie.load_pandas().data
    held_out = visits.index // 200 % 5 == 4
    train, holdout = visits[~held_out], visits[held_out]
    by_rows = bw.BaggedGLM("poisson").fit(train.drop(columns="mdvis"), train["mdvis"])
    print("a fit to the labels of rows, which only the custodian has")
    print(by_rows.summary())

    learn(bw.make_release(train, label="mdvis", bag_size=20, strategy="kmeans", not_private=True))
    private = bw.make_release(
        train, label="mdvis", bounds=BOUNDS, bag_size=100, strategy="kmeans", epsilon=1.0, delta=0.0
    )
    learn(private)

    model = bw.fit(private, family="poisson")
    scores = bw.evaluate(model, holdout, bounds=BOUNDS, epsilon=0.5, loss="absolute")
    print(f"\nmean error on {scores.n_rows} held-out rows: {scores.mean_loss:.2f} visits, give or")
    print(f"take {scores.noise_sd:.2f} of privacy noise: {scores.certificate.headline}")


if __name__ == "__main__":
    main()
