from uuid import UUID

from services.injection.assembling.threads import ThreadMemory

ONE, TWO = UUID(int=1), UUID(int=2)


def test_threads_of_one_name_are_apart_for_each_user_workspace_and_tenant() -> None:
    memory = ThreadMemory()
    memory.keep(("t", "ada", "w", "main"), [ONE])
    assert memory.recall(("t", "ada", "w", "main")) == {ONE}
    for other in (("t", "bob", "w", "main"), ("t", "ada", "v", "main"), ("s", "ada", "w", "main")):
        assert memory.recall(other) == frozenset()


def test_only_the_threads_of_late_are_kept() -> None:
    memory = ThreadMemory(max_threads=2)
    for name in ("a", "b", "a", "c"):
        memory.keep(("t", "u", "w", name), [TWO])
    assert [bool(memory.recall(("t", "u", "w", name))) for name in "abc"] == [True, False, True]
