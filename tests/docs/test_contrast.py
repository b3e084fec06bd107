"""Titles and secondary text of the site have the contrast that WCAG 2 asks for (1.4.3), in both schemes: 4.5, on the page and in the navigation's drawer."""

from __future__ import annotations

import colorsys
import re

import pytest

from tests.docs.test_pages import ROOT

CSS = (ROOT / "docs" / "extra.css").read_text("utf-8")
LEAST = 4.5
Colour = tuple[float, float, float]

# Of Material for MkDocs 9, whose own text is `light`: (page, text, share of the text's colour in the background of the drawer's titles).
HUE = 225
SCHEMES: dict[str, tuple[Colour, Colour, float]] = {
    "default": ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), 0x12 / 255),
    "slate": (colorsys.hls_to_rgb(HUE / 360, 0.14, 0.15), colorsys.hls_to_rgb(HUE / 360, 0.90, 0.15), 0.12),
}


def over(top: Colour, share: float, below: Colour) -> Colour:
    """A colour that lies over another with an opacity."""
    r, g, b = (x * share + y * (1 - share) for x, y in zip(top, below))
    return r, g, b


def luminance(colour: Colour) -> float:
    """WCAG's relative luminance of a colour of sRGB."""
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: Colour, b: Colour) -> float:
    """WCAG's ratio of two colours, 1 to 21."""
    dark, bright = sorted((luminance(a), luminance(b)))
    return (bright + 0.05) / (dark + 0.05)


def opacity(scheme: str) -> float:
    """The opacity that extra.css gives secondary text: the last byte of #000000.., or the last number of hsla()."""
    block = next(
        b for b in re.findall(rf'\[data-md-color-scheme="{scheme}"\] \{{([^}}]*)', CSS) if "fg-color--light:" in b
    )
    value = re.search(r"fg-color--light: ([^;]+);", block)
    assert value is not None
    text = value[1]
    return int(text[-2:], 16) / 255 if text.startswith("#") else float(text.rstrip(")").rpartition(",")[2])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_secondary_text_can_be_read(scheme: str) -> None:
    page, text, share = SCHEMES[scheme]
    for below in (page, over(text, share, page)):
        assert contrast(over(text, opacity(scheme), below), below) >= LEAST


def test_the_formula_is_wcags() -> None:
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast((0x77 / 255,) * 3, (1, 1, 1)) == pytest.approx(
        4.48, abs=0.01
    )  # the grey that is known to fail narrowly
