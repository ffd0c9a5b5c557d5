"""Text for people is plain technical English; language.py lists the words to avoid and better ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.docs.language import ALLOWED, BANNED, ROOT, Found, allowed, find, judge, pieces, places


@pytest.mark.parametrize("place", places())
def test_words_to_avoid_do_not_occur(place: str) -> None:
    found = [str(one) for one in find(place) if not allowed(one)]
    assert not found, "\n".join(found)


def test_each_exception_is_needed_and_has_its_reason() -> None:
    for path, words, reason in ALLOWED:
        assert reason, path
        place = next(name for name, files in places().items() if ROOT / path in files)
        assert any(one.path == path and words in one.around for one in find(place)), f"{path}: {words}"


SEEN = {
    "a string": ('text = "the user is told why"\n', ["told"]),
    "a string in parts": ('text = f"{name} is" f" no name"\n', ["is no"]),
    "a docstring": ('"""Mends\n\nthe rest by\nitself."""\n', ["Mends", "by itself"]),
    "a comment over two lines": ("x = 1  # it waits so\n# long\n", ["so long"]),
    "a test's name": ("def test_nobody_waits(): ...\n", ["nobody"]),
    "a key for programs": ('by = {"told": 1}\n', []),
    "a name of a function": ("def tell(): ...\n", []),
    "plain words": ('text = "there is no disk, it is no longer used"\n', []),
}


@pytest.mark.parametrize(("text", "words"), SEEN.values(), ids=SEEN)
def test_texts_of_python_are_seen(text: str, words: list[str], tmp_path: Path) -> None:
    assert [one.word for one in _found(tmp_path / "file.py", text)] == words


def test_words_of_a_page_are_found_with_their_line(tmp_path: Path) -> None:
    found = _found(tmp_path / "page.md", "# Title\n\nThe disk\n  is\n  told.\n")
    assert [(one.word, one.line) for one in found] == [("told", 5)]


def test_each_banned_word_has_a_better_one() -> None:
    assert all(BANNED.values())


def _found(file: Path, text: str) -> list[Found]:
    file.write_text(text)
    return [one for piece in pieces(file) for one in judge(file.name, piece)]
