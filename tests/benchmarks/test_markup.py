"""Text never becomes markup by accident."""

from __future__ import annotations

from benchmarks.markup import Cell, figure, join, table, tag


def test_text_is_escaped_once() -> None:
    assert tag("p", "a < b", tag("b", "& so on")) == "<p>a &lt; b<b>&amp; so on</b></p>"


def test_attributes_are_escaped_and_empty_ones_left_out() -> None:
    assert tag("p", title='say "x"', class_="") == '<p title="say &quot;x&quot;"></p>'


def test_a_piece_stays_markup_when_joined() -> None:
    assert join([tag("b", "<"), ">"], ", ") == "<b>&lt;</b>, &gt;"


def test_numeric_columns_and_styled_cells() -> None:
    assert table(("rule", "n"), [("x", Cell("1", "holds"))], numeric=(1,)) == (
        '<div class="scroll"><table><thead><tr><th scope="col">rule</th><th class="number" scope="col">n</th></tr></thead>'
        '<tbody><tr><td>x</td><td class="number holds">1</td></tr></tbody></table></div>'
    )


def test_a_figure_carries_its_image() -> None:
    assert '<img src="data:image/png;base64,aGk=" alt="&lt;hi&gt;">' in figure(b"hi", "caption", "<hi>")
