"""The start of the program: Ctrl-C ends it quietly at any moment after its first lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# stands in for a person who is quick: the interrupt comes when the named module is first looked for
_INTERRUPT = """
import sys
class Quick:
    wanted = sys.argv[1]
    def find_spec(self, name, path=None, target=None):
        if name == self.wanted:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Quick())
sys.argv[:] = ["aim-adapters", "lint", "--help"]
from cli.main import main
main()
"""


def test_ctrl_c_while_it_loads() -> None:
    for module in ("cli.program", "typer", "cli.lint_command"):
        done = subprocess.run(
            [sys.executable, "-c", _INTERRUPT, module], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 130, (module, done)
        assert "Traceback" not in done.stderr, (module, done.stderr)


def test_the_first_lines_load_nothing_that_takes_long() -> None:
    listed = "[name for name in sys.modules if name.startswith(('typer', 'app', 'cli.', 'api'))]"
    code = f"import sys, cli.main; print({listed})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['cli.main']"


_WITHOUT_DEVELOPMENT_CLUSTER = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "devcluster":
            raise ModuleNotFoundError("No module named 'devcluster'", name="devcluster")
sys.meta_path.insert(0, Missing())
sys.argv[:] = ["aim-adapters", *sys.argv[1:]]
from cli.main import main
main()
"""


def test_dev_explains_that_it_needs_a_checkout() -> None:
    for words in (["dev"], ["dev", "up"], ["dev", "--help"]):
        argv = [sys.executable, "-c", _WITHOUT_DEVELOPMENT_CLUSTER, *words]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith('error: "dev" runs only in a checkout'), done.stderr
        assert done.stderr.count("\n") == 1, "one line, no traceback"
        assert "make setup" in done.stderr


def test_the_other_commands_do_not_need_the_development_cluster() -> None:
    argv = [sys.executable, "-c", _WITHOUT_DEVELOPMENT_CLUSTER]
    done = subprocess.run([*argv, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "lint" in done.stdout
