"""A model card in Markdown, with the fields that model hubs read."""

import math

from bagwise._printable import printable
from bagwise._version import __version__
from bagwise.models import RowModel, TreeModel
from bagwise.privacy.certificate import NOT_PRIVATE

_CARD = """\
---
library_name: bagwise
pipeline_tag: {task}
tags:
- tabular
- label-differential-privacy
- learning-from-label-proportions
---

# A model of {label}

{kind} that predicts {label} of single rows.{error}

## How to use it

```python
import bagwise as bw

model = bw.load_model("{file}")
model.predict(table)
```

It needs the columns {inputs}.

## Training data

{rows}

## Privacy

{privacy}

Features were public when the model was made; the promise is about labels only.

## Limits

{limits}

Made with bagwise {version}.
"""


def model_card(model: RowModel | TreeModel, *, file: str) -> str:
    """Return the card of a model that is kept in a file of this name."""
    made = model.trained_on
    is_class = model.classes is not None or model.target is not None or model.family == "bernoulli"
    kind = "A generalised linear model" if isinstance(model, RowModel) else "Boosted trees"
    error = ""
    if model.family == "gaussian" and made.row_variance is not None:
        error = f" The typical error of one prediction is about {math.sqrt(made.row_variance):.3g}."
    bags = "" if made.n_bags is None else f" in {made.n_bags} bags, each with one label"
    promise = model.certificate.headline if model.certificate else made.privacy
    limits = ["It has never seen the label of a single row." if made.n_bags else ""]
    if model.bounds is not None:
        limits.append(f"Predictions are clipped to {model.bounds[0]:g} and {model.bounds[1]:g}.")
    if isinstance(model, RowModel):
        limits.append(model.note)
    return _CARD.format(
        task="tabular-classification" if is_class else "tabular-regression",
        label=_code(model.label if model.target is None else f"{model.label} = {model.target}"),
        kind=f"{kind} ({model.family})",
        error=error,
        file=_plain(file),
        inputs=", ".join(map(_code, model.encoder.inputs)),
        rows=f"{made.n_rows} rows{bags}.",
        privacy="The labels were not protected: NOT PRIVATE."
        if promise in (None, NOT_PRIVATE)
        else f"The labels are protected by {promise}.",
        limits=" ".join(filter(None, limits)),
        version=__version__,
    )


def _plain(text: str) -> str:
    """Return a name that cannot end what it stands in."""
    return printable(text).replace("`", "'").replace('"', "'").replace("\\", "/")


def _code(name: str) -> str:
    return f"`{_plain(name)}`"
