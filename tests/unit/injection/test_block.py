import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.injection.assembling import block

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def test_block_is_a_heading_and_a_bullet_per_fact() -> None:
    assert block.render("## Things", ["User likes tea.", "User is 7."]) == "## Things\n- User likes tea.\n- User is 7."


def test_no_facts_no_block() -> None:
    assert block.render("## Things", []) == ""


@given(st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from(LINE_ENDS)), min_size=1, max_size=6))
def test_a_fact_cannot_leave_its_bullet(contents: list[str]) -> None:
    lines = block.render("## Things\nof two lines", contents).splitlines()
    assert len(lines) == 1 + len(contents)
    assert all(line.startswith("- ") for line in lines[1:])


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])))
def test_a_fact_of_one_line_is_written_as_it_is(content: str) -> None:
    assert block.bullet(content) == f"- {content}"


@pytest.mark.parametrize("prompt", ["You help.", "  spaces stay \n\n", "\r\n", "\ufeffé"])
def test_block_goes_after_two_newlines(prompt: str) -> None:
    assert block.append(prompt, "## B\n- f") == prompt + "\n\n## B\n- f"
    assert block.append(prompt, "") == prompt


@pytest.mark.parametrize("nothing", [None, ""])
def test_without_a_prompt_the_block_stands_alone(nothing: str | None) -> None:
    assert block.append(nothing, "## B\n- f") == "## B\n- f"
    assert block.append(nothing, "") == ""
