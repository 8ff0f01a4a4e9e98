"""`python -m smoke --project P --region R`, or `--local` for the realistic local stack.

Exit status: 0 every step succeeded and no assumption is wrong · 1 otherwise · 2 wrong usage · 130
interrupted.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from smoke.run import smoke
from smoke.terraform import ROOT, GoogleInstallation
from smoke.world import StepError

COST: Final = (
    "This installs Trainmaster in {project}, runs jobs on at most three VMs at a time, and removes"
    " everything again.\n"
    "It takes about an hour and a half and costs less than one dollar (docs/smoke.md has the sum)."
    " Enabled APIs stay enabled.\n"
)
INTERRUPTED: Final = 130


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="smoke", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--project", help="project without an installation")
    parser.add_argument("--region", help="region of the functions and of the jobs")
    parser.add_argument(
        "--notify", default="", help="e-mail address of the alerts; default: gcloud's account"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--remove", action="store_true", help="only remove what an interrupted run left"
    )
    parser.add_argument(
        "--local", action="store_true", help="use a realistic local stack instead of Google Cloud"
    )
    parser.add_argument(
        "--time-scale", type=float, default=0.1, help="with --local: factor of all durations"
    )
    options = parser.parse_args(argv)
    if not options.local and not (options.project and options.region):
        parser.error(
            "name the project and its region: make smoke PROJECT=my-project REGION=us-central1"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM removes everything, too
    try:
        if options.local:
            from smoke.local_stack import LocalInstallation  # needs the packages of the local stack

            return smoke(LocalInstallation(options.time_scale, _say), _say)
        installation = GoogleInstallation(
            options.project, options.region, options.notify or _account(), _say
        )
        if options.remove:
            installation.remove()
            return 0
        return _smoke_on_google_cloud(installation, is_agreed=options.yes)
    except StepError as error:
        sys.stderr.write(f"smoke: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _smoke_on_google_cloud(installation: GoogleInstallation, *, is_agreed: bool) -> int:
    _say(COST.format(project=installation.project))
    if not is_agreed and input("Continue? [y/N] ").strip().lower() not in ("y", "yes"):
        _say("Nothing was changed.")
        return 1
    subprocess.run([sys.executable, "-m", "infra.stage"], check=True, cwd=ROOT)
    return smoke(installation, _say)


def _account() -> str:
    """Return the e-mail address of gcloud's account. Raises StepError if there is none."""
    done = subprocess.run(
        ["gcloud", "config", "get-value", "account", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "@" not in done.stdout:
        raise StepError(
            "gcloud has no account: run `gcloud auth login` and `gcloud auth application-default"
            " login`"
        )
    return done.stdout.strip()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
