"""The `trainmaster` program, or the command that installs what it needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line.

    It needs the extra `cli`, which an installation of the Python client does not have.
    """
    try:
        from trainmaster.cli.main import run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("trainmaster"):
            raise
        sys.exit(
            f"trainmaster: the command line needs {error.name}. Install it in a checkout: pip"
            " install '.[cli]'"
        )
    run()


if __name__ == "__main__":
    main()
