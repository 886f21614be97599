"""Builds the documentation; each warning, and each link that leads nowhere, is an error.

    python tools/docs.py               build/docs/html/index.html
    python tools/docs.py --fresh       the same from the beginning, as CI does
    python tools/docs.py --readme      only put the benchmark's last figures into README.rst

Needs ``pip install -e '.[docs]'``. Exit code 0: built without a warning; 1: not built, or the
packages are missing. The examples on the pages are doctests: pytest runs them.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build/docs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier builds")
    parser.add_argument("--readme", action="store_true", help="write the README's figures only")
    options = parser.parse_args()
    if options.readme:
        sys.path.insert(0, str(ROOT / "docs"))
        import figure_tables

        figure_tables.write_readme()
        return 0
    if not all(importlib.util.find_spec(name) for name in ("sphinx", "furo")):
        print("Sphinx or Furo is missing: pip install -e '.[docs]'", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html"]
    command += ["-d", str(BUILT / "cache"), *(["-E", "-a"] if options.fresh else [])]
    done = subprocess.run([*command, str(ROOT / "docs"), str(BUILT / "html")], cwd=ROOT)
    if done.returncode != 0:
        return 1
    pages = len(list((BUILT / "html").glob("**/*.html")))
    print(f"{pages} pages: {BUILT / 'html/index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
