"""How figures are written."""

import pytest

from pipeline.formatting import p_text, share_text


@pytest.mark.parametrize(("share", "text"), [(0.4966, ".497"), (-0.0123, "−.012"), (-0.0004, ".000"), (1.0, "1.000")])
def test_share_text(share, text):
    assert share_text(share) == text


@pytest.mark.parametrize(("p", "text"), [(0.0, "< .001"), (0.00099, "< .001"), (0.001, ".001"), (1.0, "1.000")])
def test_p_text(p, text):
    assert p_text(p) == text
