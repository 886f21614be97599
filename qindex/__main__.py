"""`python -m qindex` is the `qindex` command."""

import sys

from qindex.cli.main import main

sys.exit(main())
