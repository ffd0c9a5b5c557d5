"""Reading YAML with places: what Kubernetes' reader makes of it, and where each field is."""

from __future__ import annotations

import pytest

from cli.lint.document import Position, parse, read_scalar, split_path

SERVICE = """\
# a comment
apiVersion: v1
kind: Thing
metadata:
  labels: {a/b: x, team.example.com/n: y}
spec:
  adapters:
  - name: one
  - kind: K
    name: two
---
kind: Second
list: [1, 2]
"""

PLACES = {
    "a key": (0, "spec.adapters", Position(7, 3)),
    "a member of a list": (0, "spec.adapters[0].name", Position(8, 5)),
    "the second member": (0, "spec.adapters[1].name", Position(10, 5)),
    "an entry itself": (0, "spec.adapters[1]", Position(9, 5)),
    "a missing field: the closest parent": (0, "spec.adapters[1].sourceUri.deep", Position(9, 5)),
    "an index that is not there": (0, "spec.adapters[7].name", Position(7, 3)),
    "a missing top field: the document": (0, "status.x", Position(2, 1)),
    "a label with a slash": (0, "metadata.labels[a/b]", Position(5, 12)),
    "a label with dots": (0, "metadata.labels[team.example.com/n]", Position(5, 20)),
    "the second document": (1, "list[1]", Position(13, 11)),
    "no path: the document": (1, "", Position(12, 1)),
}


@pytest.mark.parametrize(("index", "path", "place"), PLACES.values(), ids=PLACES)
def test_place_of_a_field(index: int, path: str, place: Position) -> None:
    documents, problems = parse(SERVICE)
    assert problems == []
    assert documents[index].locate(path) == place


SCALARS = {
    "yes is true": ("yes", True),
    "off is false": ("off", False),
    "an octal number": ("010", 8),
    "a hexadecimal number": ("0x1F", 31),
    "an underscore in a number": ("1_000", 1000),
    "base 60 is text": ("1:30", "1:30"),
    "a date is text": ("2024-05-01", "2024-05-01"),
    "a float": ("1.5", 1.5),
    "a quoted number": ('"7"', "7"),
    "nothing": ("~", None),
    "a tagged string": ("!!str 5", "5"),
    "an unknown tag is text": ("!secret abc", "abc"),
    "one letter is a boolean": ("y", True),
    "and so is this one": ("N", False),
    "but not when tagged": ("!!str y", "y"),
    "no octal number": ("08", 8),
    "an octal number as of YAML 1.2": ("0o20", 16),
    "an exponent without a dot": ("16e0", 16),
    "an exponent": ("1.6e1", 16),
    "a sign before a dot": ("+.5", 0.5),
    "a binary number": ("0b101", 5),
    "a prefix alone is text": ("0x", "0x"),
    "a number cut off is text": ("12e", "12e"),
}


@pytest.mark.parametrize(("written", "value"), SCALARS.values(), ids=SCALARS)
def test_scalars_read_as_kubernetes_reads_them(written: str, value: object) -> None:
    documents, problems = parse(f"x: {written}\n")
    assert (documents[0].value, problems) == ({"x": value}, [])


def test_a_value_that_json_does_not_have_is_reported() -> None:
    (document,), _ = parse("a:\n- .inf\n- -.Inf\n- .nan\n- '.nan'\n")
    assert [(problem.reason, problem.path) for problem in document.problems] == [
        ("YamlInvalid", f"a[{index}]") for index in range(3)
    ]
    assert "quote it" in document.problems[0].detail


def test_a_huge_number_is_text() -> None:
    assert isinstance(read_scalar("tag:yaml.org,2002:int", "9" * 5000), str)


PROBLEMS = {
    "an open bracket": ("a: [\n", "YamlInvalid", 2),
    "a fault in the second document": ("a: 1\n---\nb: [\n---\nc: 1\n", "YamlInvalid", 4),
    "an alias without an anchor": ("a: *nowhere\n", "YamlInvalid", 1),
    "an alias of itself": ("a: &a [*a]\n", "YamlInvalid", 1),
    "a control character": ("a: b\nc: \x01\n", "YamlInvalid", 2),
    "a key that is a list": ("[1, 2]: x\n", "YamlInvalid", 1),
    "a billion laughs": (
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)),
        "YamlTooLarge",
        None,
    ),
    "nested too deeply": ("[" * 400 + "]" * 400, "YamlTooLarge", 1),
    "nested beyond the parser": ("[" * 100_000, "YamlInvalid", None),
}


@pytest.mark.parametrize(("text", "reason", "line"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_read(text: str, reason: str, line: int | None) -> None:
    _, problems = parse(text)
    assert [problem.reason for problem in problems] == [reason]
    assert line is None or problems[0].position.line == line


def test_a_fault_hides_no_other_document() -> None:
    documents, problems = parse("a: 1\n---\nb: [\n---\nc: 1\n")
    assert [document.value for document in documents] == [{"a": 1}, {"c": 1}]
    assert len(problems) == 1


def test_a_template_is_called_one() -> None:
    _, problems = parse("a: {{ .Values.x }}\n")
    assert "helm template" in problems[0].detail


def test_repeated_keys_are_reported_with_both_places() -> None:
    documents, _ = parse("a:\n  b: 1\n  c: 2\n  b: 3\n")
    (problem,) = documents[0].problems
    assert (problem.reason, problem.path, problem.position) == ("KeyDuplicate", "a.b", Position(4, 3))
    assert "line 2" in problem.detail


def test_merge_keys_count_less_than_own_ones() -> None:
    documents, _ = parse("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\n")
    assert documents[0].value["use"] == {"x": 1, "y": 3}


def test_lists_are_taken_apart_with_places() -> None:
    documents, _ = parse("kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n  x: 1\n  x: 2\n")
    assert [document.value["kind"] for document in documents] == ["A", "B"]
    assert documents[1].locate("x") == Position(6, 3)
    assert [problem.path for problem in documents[1].problems] == ["x"]
    assert documents[0].problems == ()


def test_items_of_a_typed_list_need_no_kind() -> None:
    (item,), problems = parse("apiVersion: a/v1\nkind: AIMServiceList\nitems:\n- metadata: {name: x}\n")
    assert not problems
    assert item.value == {"apiVersion": "a/v1", "kind": "AIMService", "metadata": {"name": "x"}}
    assert item.locate("metadata.name") == Position(4, 14)


def test_lists_in_lists_are_taken_apart() -> None:
    (document,), _ = parse("kind: List\nitems:\n- kind: List\n  items:\n  - kind: A\n    x: 1\n    x: 2\n")
    assert document.value == {"kind": "A", "x": 2}
    assert document.locate("x") == Position(6, 5)
    assert [problem.path for problem in document.problems] == ["x"]


def test_json_objects_one_after_the_other_are_documents() -> None:
    """As `jq` prints them and kubectl reads them."""
    documents, problems = parse('{"a": 1}\n\n{"b":\n  2} {"c": "\\ud83d\\ude00"}\n', is_json=True)
    assert problems == []
    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}, {"c": "\U0001f600"}]
    assert [document.locate("b").line for document in documents] == [1, 3, 4]
    documents, problems = parse('{"a": 1}\n{"b":\n', is_json=True)
    assert (documents, len(problems)) == ([], 1)


def test_directives_are_skipped() -> None:
    documents, problems = parse("%YAML 1.1\n# a comment\n---\na: 1\n")
    assert (len(documents), problems) == (1, [])
    assert documents[0].locate("a") == Position(4, 1)


def test_helm_says_where_a_document_comes_from() -> None:
    documents, _ = parse(
        "---\n# Source: chart/templates/a.yaml\nkind: A\n---\n# Source: chart/templates/b.yaml\nkind: B\n"
    )
    assert [document.origin for document in documents] == ["chart/templates/a.yaml", "chart/templates/b.yaml"]
    assert documents[1].locate("kind").line == 6


def test_json_that_is_not_yaml() -> None:
    documents, problems = parse('{"a": "\\ud83d\\ude00"}', is_json=True)
    assert (documents[0].value, problems) == ({"a": "\U0001f600"}, [])


def test_json_with_tabs() -> None:
    documents, problems = parse('{\n\t"a":\t1\n}\n', is_json=True)
    assert (documents[0].value, problems) == ({"a": 1}, [])


def test_paths_are_split_as_kubectl_prints_them() -> None:
    assert split_path("spec.adapters[2].name") == ["spec", "adapters", 2, "name"]
    assert split_path("metadata.labels[a.b/c]") == ["metadata", "labels", "a.b/c"]
    assert split_path("") == []
