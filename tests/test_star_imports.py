"""Every package has the names that it says it has."""

import importlib
import pkgutil

import pytest

import bagwise


def packages():
    yield "bagwise"
    for module in pkgutil.walk_packages(bagwise.__path__, "bagwise."):
        if module.ispkg:
            yield module.name


@pytest.mark.parametrize("name", list(packages()))
def test_a_star_imports_what_a_package_names(name):
    names = {}
    exec(f"from {name} import *", names)  # noqa: S102 (what is tested)
    listed = getattr(importlib.import_module(name), "__all__", ())
    assert set(listed) <= set(names)
