"""The block of facts that goes after a prompt."""

from collections.abc import Iterable


def one_line(text: str) -> str:
    """`text` without line ends of any kind: a fact cannot leave its bullet, whatever is stored."""
    return text if text.splitlines() in ([text], []) else " ".join(text.split())


def heading_line(heading: str) -> str:
    return one_line(heading)


def bullet(content: str) -> str:
    return f"- {one_line(content)}"


def render(heading: str, contents: Iterable[str]) -> str:
    """A heading and one bullet per fact, `1 + facts` lines; "" where there is no fact."""
    bullets = [bullet(content) for content in contents]
    return "\n".join([heading_line(heading), *bullets]) if bullets else ""


def append(system_prompt: str | None, block: str) -> str:
    """The block after two newlines; the prompt byte for byte where there is no block, the block alone where there is no prompt."""
    if not block:
        return system_prompt or ""
    return f"{system_prompt}\n\n{block}" if system_prompt else block
