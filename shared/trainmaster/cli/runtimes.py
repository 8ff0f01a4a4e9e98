"""`trainmaster runtimes`: the runtime versions, and what each of them brings."""

from __future__ import annotations

from dataclasses import asdict

from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, print_json, print_table, say
from trainmaster.presentation.runtime_table import package_rows, past_rows, runtime_rows


def runtimes(form: OutputFormat = Format.TABLE) -> None:
    """List the runtime versions with their frameworks, the packages that all have, and the past
    versions.
    """
    # Each row of `past`: versions, their Pythons, and what replaces them.
    rows = runtime_rows()
    packages = package_rows()
    past = past_rows()
    if form is Format.JSON:
        print_json(
            {
                "runtimes": [asdict(row) for row in rows],
                "packages": [
                    {"module": module, "requirement": requirement}
                    for module, requirement in packages
                ],
                "past": [
                    {"versions": versions, "pythons": pythons, "replacement": replacement}
                    for versions, pythons, replacement in past
                ],
            }
        )
        return
    print_table(
        ["runtimeVersion", "python", "frameworks", "tpu"],
        [
            [
                row.version + (" (default)" if row.is_default else ""),
                row.python,
                " ".join(row.frameworks),
                " ".join(row.on_tpus),
            ]
            for row in rows
        ],
    )
    say("")
    say("Every runtime also has:")
    print_table(["module", "package"], [list(row) for row in packages])
    say("")
    say("Past versions are replaced as follows; the job lists this as a substitution:")
    print_table(["runtimeVersion", "its python", "replaced by"], [list(row) for row in past])
