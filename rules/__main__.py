"""`python -m rules`: print the table of rules (docs/rules.md)."""

import sys

from rules.table import render

sys.stdout.write(render())
