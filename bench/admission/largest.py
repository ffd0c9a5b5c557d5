"""CPU of a review by kind and by field at the greatest admitted size: `python bench/admission/largest.py`.

Judges objects in this process, from the bytes of a review to the bytes of the answer. Each figure is the largest of
four: validation and mutation, with and without the fast path; each of them is the least of three runs. Prints a
table in Markdown, and exits with 1 when a figure is above 50 ms.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import orjson  # noqa: E402 - found through the line above

from api.kinds import AIM_KINDS, Kind  # noqa: E402
from rules.examples import surroundings  # noqa: E402
from tests.unit.tenants.sizes import sized  # noqa: E402
from webhooks.admission import Admission  # noqa: E402
from webhooks.fast.admission import make_admission  # noqa: E402
from webhooks.review import Malformed  # noqa: E402

MOST_MILLISECONDS = 50


def body_of(kind: Kind, new: object, old: object) -> bytes:
    """Return the body of a review of an update."""
    request = {
        "uid": "1",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "operation": "UPDATE",
        "namespace": "team-llm",
        "name": "large",
        "object": new,
        "oldObject": old,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def milliseconds(admission: Admission, path: str, body: bytes) -> float:
    """Return the CPU time of one review, the least of three."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        review = admission.read(body)
        assert not isinstance(review, Malformed)
        admission.webhooks[path](review)
        taken.append(time.process_time() - start)
    return min(taken) * 1000


def main() -> int:
    """Print the table; return 0 when all figures are within the limit."""
    world = surroundings()
    admissions = (Admission(world), make_admission(world))
    rows = []
    for kind in AIM_KINDS:
        for times, label in ((1, "at the bound"), (2, "beyond it")):
            found = []
            for case in sized(kind, times):
                body = body_of(kind, case.obj, {**case.obj, "spec": {}})
                paths = ("/validate", "/mutate")
                found.append((max(milliseconds(each, path, body) for each in admissions for path in paths), case.field))
            found.sort(reverse=True)
            rows += [(kind.kind, label, field, figure) for figure, field in found[:3]]
    print("| kind | size | field | ms of CPU |")
    print("|---|---|---|---|")
    for name, label, field, figure in rows:
        print(f"| {name} | {label} | `spec.{field}` | {figure:.1f} |")
    worst = max(figure for *_, figure in rows)
    print(f"\nThe largest figure is {worst:.1f} ms. The limit is {MOST_MILLISECONDS} ms.")
    return int(worst > MOST_MILLISECONDS)


if __name__ == "__main__":
    sys.exit(main())
