"""The key of an artifact."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.keys import canonical, make_key

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def reversed_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_names(value[name]) for name in reversed(value)}
    return [reversed_names(item) for item in value] if isinstance(value, list) else value


@given(config=st.dictionaries(st.text(), JSON, max_size=5))
def test_the_order_of_names_changes_no_key(config):
    assert canonical(config) == canonical(reversed_names(config))
    one = make_key("s", {"a": "1", "b": "2"}, config, {}, {"x": "1", "y": "2"}, {})
    other = make_key("s", {"b": "2", "a": "1"}, reversed_names(config), {}, {"y": "2", "x": "1"}, {})
    assert one == other


@given(config=st.dictionaries(st.text(), JSON, max_size=5))
def test_a_key_rebuilt_from_its_record_is_the_same(config):
    key = make_key("s", {}, config, {}, {}, {})
    read = json.loads(json.dumps(key.config))
    assert make_key("s", {}, read, {}, {}, {}).hex == key.hex


def test_every_component_enters_the_key(key):
    changes = [
        {"stage": "other"},
        {"code": {"pipeline/train.py": "c1"}},
        {"config": {"steps": 4, "optimiser": {"rate": 0.1}}},
        {"config": {"steps": 3, "optimiser": {"rate": 0.2}}},
        {"sources": {"corpus": "s1"}},
        {"inputs": {"tokens": "i1"}},
        {"inputs": {"words": "i0"}},
        {"libraries": {"tokenizers": "1"}},
    ]
    hexes = {key(**change).hex for change in changes} | {key().hex}
    assert len(hexes) == len(changes) + 1
    assert all(len(text) == 64 for text in hexes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_values_that_json_lacks_are_refused(value):
    with pytest.raises((ValueError, TypeError)):
        make_key("s", {}, {"field": value}, {}, {}, {})
