"""Sources with very long lines, whose submitter chooses them."""

from __future__ import annotations

import time

from trainmaster.program_files.findings import ProgramFiles
from trainmaster.program_files.source_files import Entry, Sources

CPU_S_MAX = 5.0


def test_error_in_a_very_long_line_is_reported_in_a_moment_and_refuses_no_job() -> None:
    content = b"x = 1 1 " + b"*a" * 30_000
    files = ProgramFiles(frozenset(("task.py",)), lambda _: content)
    begin = time.process_time()
    (finding,) = Sources(files, python="").check_syntax(Entry("task.py", root=""))
    assert time.process_time() - begin < CPU_S_MAX
    assert not finding.must_fail
