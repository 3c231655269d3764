"""What the block rules of all dialects share: the text of a line, tokens for whole lines, and a limit to what a wrong guess may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock

INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
_SPENT = "looked at in vain"
_BUDGET = 1_000_000


def rest(state: StateBlock, line: int) -> str:
    """A line's text behind its indentation."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def first_marks(state: StateBlock, line: int, length: int) -> str:
    """The first characters of a line's text, without a copy of a long line."""
    start = state.bMarks[line] + state.tShift[line]
    return state.src[start : min(start + length, state.eMarks[line])]


def leaves(state: StateBlock, line: int) -> bool:
    """Whether a line is written further left than what it would belong to."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def push(state: StateBlock, kind: str, start: int, end: int, content: str = "") -> bool:
    """Take whole lines as one token."""
    token = state.push(kind, "", 0)
    token.map = [start, end]
    token.content = content
    state.line = end
    return True


def may_look(state: StateBlock) -> bool:
    """Whether a rule may still search for an end that might not be there: on a page of broken marks it may not, at some point."""
    return int(state.env.get(_SPENT, 0)) < _BUDGET


def in_vain(state: StateBlock, characters: int) -> bool:
    """Note a search that found nothing; return False, as a rule does that does not apply."""
    state.env[_SPENT] = int(state.env.get(_SPENT, 0)) + characters
    return False
