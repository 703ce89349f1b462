from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ids import check_id, is_anonymous, partition_key

ids = st.text(st.characters(exclude_categories=("Cc", "Cs", "Co")), min_size=1, max_size=200)


@pytest.mark.parametrize("value", ["", "a" * 201, "a\0b", "line\nbreak", "\x7f", "\ud800", "\ue000", "tab\t"])
def test_refuses_what_is_no_id(value: str) -> None:
    with pytest.raises(ValueError, match="an id"):
        check_id(value)


@pytest.mark.parametrize("value", ["a", "a" * 200, "a b", "ünïcode", "日本", "& = / : % \" '", " leading", "ZWJ\u200d"])
def test_takes_opaque_ids_as_they_are(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize(
    "user", [None, "", " ", "null", "Undefined", "NONE", "nan", "Guest", "[object Object]", " anonymous "]
)
def test_stand_ins_are_anonymous(user: str | None) -> None:
    assert is_anonymous(user)


@pytest.mark.parametrize("user", ["Nan Goldin", "0", "guest1", "nil"])
def test_names_are_somebody(user: str) -> None:
    assert not is_anonymous(user)


@given(ids, ids, ids)
def test_a_partition_key_says_exactly_whose_it_is(tenant: str, user: str, workspace: str) -> None:
    key = partition_key(tenant, user, workspace).decode("ascii")
    assert [unquote(part) for part in key.split("/")] == [tenant, user, workspace]


def test_an_anonymous_user_is_an_empty_part() -> None:
    assert partition_key("t", None, "w~-._") == b"t//w~-._"
