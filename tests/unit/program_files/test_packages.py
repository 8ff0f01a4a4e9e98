"""Packages that cannot run are refused before a VM is paid for; packages that may run are not."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.run import Used
from tests.support.archives import sdist_of, wheel_of
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.program_files.archives import Archive, open_archive
from trainmaster.program_files.findings import ProgramFinding
from trainmaster.program_files.packages import check_module, check_packages, has_module
from trainmaster.program_files.requirements import RuntimePackages

MIB = 1 << 20
PYTORCH = RuntimePackages("pytorch-2.13", "3.12", RUNTIMES["pytorch-2.13"].packages)
OWN_IMAGE = RuntimePackages("2.21", "", ())
BROKEN = "def f(:\n"
SETUP = "from setuptools import setup\nsetup(name='trainer', packages=['trainer'])\n"
EGG = "trainer.egg-info"


def opened(content: bytes) -> Archive:
    archive = open_archive(content, MIB, MIB)
    assert archive is not None
    return archive


def encoded(files: dict[str, str | bytes]) -> dict[str, bytes]:
    return {
        name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()
    }


def a_source(**files: str | bytes) -> Archive:
    return opened(sdist_of(encoded(files)))


def a_wheel(**files: str | bytes) -> Archive:
    return opened(wheel_of(encoded(files)))


def check(
    *archives: Archive, module: str = "trainer.task", runtime: RuntimePackages = PYTORCH
) -> list[ProgramFinding]:
    return list(check_packages(module, archives, runtime, MIB))


def refused(*archives: Archive, **how: object) -> list[str]:
    return [found.problem for found in check(*archives, **how) if found.must_fail]  # type: ignore[arg-type]


def noted(*archives: Archive, **how: object) -> list[str]:
    return [found.problem for found in check(*archives, **how) if not found.must_fail]  # type: ignore[arg-type]


PACKAGE: dict[str, str | bytes] = {
    "trainer/__init__.py": "",
    "trainer/task.py": "import os\n",
    "setup.py": SETUP,
}
REFUSED: dict[str, dict[str, str | bytes]] = {
    "started module": {**PACKAGE, "trainer/task.py": BROKEN},
    "its package": {**PACKAGE, "trainer/__init__.py": BROKEN},
    "imported module": {
        **PACKAGE,
        "trainer/task.py": "from trainer import model\n",
        "trainer/model.py": BROKEN,
    },
    "relative import": {
        **PACKAGE,
        "trainer/task.py": "if __name__ == '__main__':\n    from . import model\n",
        "trainer/model.py": BROKEN,
    },
    "namespace package": {"trainer/task.py": BROKEN},
    "Python 2": {**PACKAGE, "trainer/task.py": "print 'step', 1\n"},
    "Latin-1 without a declaration": {**PACKAGE, "trainer/task.py": b"name = '\xe9'\n"},
    "wrong declaration": {**PACKAGE, "trainer/task.py": b"# coding: ascii\nname = '\xe9'\n"},
    "null byte": {**PACKAGE, "trainer/task.py": b"import os\0\n"},
    "src layout": {"src/trainer/task.py": BROKEN, "setup.py": SETUP},
    "another folder": {"python/trainer/task.py": BROKEN, "setup.py": SETUP},
    "__main__": {"trainer/task/__main__.py": BROKEN},
    "setup.py": {**PACKAGE, "setup.py": "print 'setup'\n"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_program_that_must_fail_is_refused_with_its_line(case: str) -> None:
    (problem,) = refused(a_source(**REFUSED[case]))
    assert ".py:1 is not valid Python: " in problem


ACCEPTED: dict[str, dict[str, str | bytes]] = {
    "nothing wrong": PACKAGE,
    "Latin-1": {**PACKAGE, "trainer/task.py": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n"},
    "byte order mark": {**PACKAGE, "trainer/task.py": b"\xef\xbb\xbfimport os\n"},
    "data of tests": {**PACKAGE, "tests/data/broken.py": BROKEN, "trainer/tests/bad.py": BROKEN},
    "template": {**PACKAGE, "trainer/templates/model.py": "import {{ name }}\n"},
    "module of Python": {
        **PACKAGE,
        "trainer/task.py": "import types, json.tool\n",
        "types.py": BROKEN,
        "json/tool.py": BROKEN,
    },
    "nested too deeply": {**PACKAGE, "trainer/task.py": "-" * 100_000 + "1\n"},
    "many operands": {**PACKAGE, "trainer/task.py": "x = 1" + " + 1" * 50_000},
    "long name": {**PACKAGE, "trainer/task.py": "import a" + ".a" * 50_000},
    "many braces": {**PACKAGE, "trainer/task.py": f"f'{'{a}' * 50_000}'\n"},
    "escapes": {**PACKAGE, "trainer/task.py": "pattern = '\\d'\n"},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_program_that_may_run_is_not_refused(case: str) -> None:
    assert refused(a_source(**ACCEPTED[case])) == []


@pytest.mark.parametrize("case", [*list(ACCEPTED)[:6], "escapes"])
def test_program_without_fault_gets_no_note(case: str) -> None:
    assert noted(a_source(**ACCEPTED[case])) == []


NOTED: dict[str, dict[str, str | bytes]] = {
    "import in a function": {
        **PACKAGE,
        "trainer/task.py": "def main():\n    import trainer.model\n",
        "trainer/model.py": BROKEN,
    },
    "encoding that a package may bring": {
        **PACKAGE,
        "trainer/task.py": "# coding: future_fstrings\nimport os\n",
    },
    "build that may write modules": {
        **PACKAGE,
        "setup.py": "from setuptools import setup\nsetup(cmdclass={})\n",
        "trainer/task.py": BROKEN,
    },
    "setup.py of another build tool": {
        **PACKAGE,
        "setup.py": BROKEN,
        "pyproject.toml": "[build-system]\nbuild-backend = 'hatchling.build'\n",
    },
}


@pytest.mark.parametrize("case", NOTED)
def test_program_that_may_fail_gets_a_note(case: str) -> None:
    archive = a_source(**NOTED[case])
    assert refused(archive) == []
    (note,) = noted(archive)
    assert "is not valid Python" in note


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("type Pair = tuple[int, int]", (3, 12)),
        ("def first[T](x: T) -> T: ...", (3, 12)),
        ("x = {'a': 1}; print(f'{x['a']}')", (3, 12)),
        ("x = (f'{x['a']}'\n    'b')", (3, 12)),
    ],
)
def test_syntax_of_the_runtimes_newer_python_is_not_refused(
    line: str, version: tuple[int, int]
) -> None:
    assert refused(a_wheel(**{"trainer/task.py": f"{line}\n"})) == []
    notes = noted(a_wheel(**{"trainer/task.py": f"{line}\n"}))
    assert len(notes) == (sys.version_info < version)


@pytest.mark.parametrize(
    "line",
    ["try:\n    pass\nexcept OSError, ValueError:\n    pass", "t'{x}'", "lazy import os"],
)
def test_syntax_of_an_unknown_newer_python_is_not_refused(line: str) -> None:
    archive = a_wheel(**{"trainer/task.py": f"{line}\n"})
    assert refused(archive, runtime=OWN_IMAGE) == []
    if sys.version_info < (3, 14):
        assert len(refused(archive)) == 1, "Python 3.12 does not accept it either"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("trainer.tsk", "no package of the job has the module trainer.tsk"),
        ("trainer.task.py", "trainer.task.py is the name of a file, and no module"),
        ("torch.distributed.run", ""),
        ("trainer", ""),
        ("trainer.deep.__main__", ""),
        ("trainer.__main__", "no package of the job has the module trainer.__main__"),
    ],
)
def test_wrong_module_is_refused(module: str, problem: str) -> None:
    deep = dict.fromkeys(("__init__.py", "__main__.py", "model.py"), "")
    files = {**PACKAGE, **{f"trainer/deep/{name}": text for name, text in deep.items()}}
    assert refused(a_source(**files), module=module) == [problem] * bool(problem)


def test_other_broken_syntax_is_refused_for_an_unknown_python() -> None:
    assert len(refused(a_wheel(**{"trainer/task.py": BROKEN}), runtime=OWN_IMAGE)) == 1


def test_module_in_another_package_of_the_job_is_judged() -> None:
    helper = a_wheel(**{"helper/__init__.py": "", "helper/nets.py": BROKEN})
    task = a_source(**{**PACKAGE, "trainer/task.py": "from helper.nets import Net\n"})
    assert refused(helper, task) == ["helper/nets.py:1 is not valid Python: invalid syntax"]


def test_later_package_replaces_the_files_of_an_earlier_one() -> None:
    old, new = (a_wheel(**{"trainer/task.py": text}) for text in (BROKEN, "import os\n"))
    assert refused(old, new) == []
    assert len(refused(new, old)) == 1


def test_module_that_several_folders_have_is_not_judged() -> None:
    archive = a_source(**{"a/trainer/task.py": BROKEN, "b/trainer/task.py": ""})
    assert check(archive) == []


TASK = "import torch, numpy, einops\nimport trainer.model\n"
REQUIRES = "Metadata-Version: 2.4\nName: trainer\nVersion: 1\nRequires-Dist: einops>=0.8\n"
BRINGS_EINOPS: dict[str, dict[str, str | bytes]] = {
    "egg-info": {f"{EGG}/PKG-INFO": "Metadata-Version: 2.1", f"{EGG}/requires.txt": "einops\n"},
    "metadata of the build": {"PKG-INFO": REQUIRES},
    "setup.py": {"setup.py": "import setuptools\nsetuptools.setup(install_requires=['einops'])"},
    "constant": {"setup.py": "R = ['einops>=0.8']\nsetup(name='a', install_requires=R)"},
    "pyproject.toml": {"pyproject.toml": "[project]\nname = 'a'\ndependencies = ['einops']"},
    "setup.cfg": {"setup.py": SETUP, "setup.cfg": "[options]\ninstall_requires =\n    einops\n"},
    "file of the package": {"einops/__init__.py": "", "setup.py": SETUP},
}
NOT_KNOWN: dict[str, dict[str, str | bytes]] = {
    "computed": {"setup.py": "setup(install_requires=open('requirements.txt').readlines())"},
    "keywords": {"setup.py": "setup(**metadata)"},
    "two calls": {"setup.py": "setup(name='a')\nsetup(name='b')"},
    "no build file": {},
    "Poetry": {"pyproject.toml": "[build-system]\nbuild-backend = 'poetry.core.masonry.api'"},
    "dynamic": {"pyproject.toml": "[project]\ndynamic = ['dependencies']"},
    "dynamic metadata": {
        "PKG-INFO": "Metadata-Version: 2.2\nDynamic: Requires-Dist\n",
        "pyproject.toml": "[project]\ndynamic = ['dependencies']",
    },
    "not UTF-8": {f"{EGG}/PKG-INFO": b"Name: \xe9"},
    "wrong TOML": {"pyproject.toml": "[project"},
}


@pytest.mark.parametrize("case", BRINGS_EINOPS | NOT_KNOWN)
def test_import_that_a_package_may_bring_gets_no_note(case: str) -> None:
    files = {"trainer/task.py": TASK, "trainer/model.py": "", **(BRINGS_EINOPS | NOT_KNOWN)[case]}
    assert check(a_source(**files)) == []


MISSES_EINOPS: dict[str, dict[str, str | bytes]] = {
    "no requirement": {"setup.py": SETUP},
    "another one": {"setup.py": "setup(install_requires=['pandas'])"},
    "of an extra": {
        f"{EGG}/PKG-INFO": "Metadata-Version: 2.1",
        f"{EGG}/requires.txt": "pandas\n\n[dev]\neinops\n",
    },
    "for another Python": {"setup.py": "setup(install_requires=['einops; python_version<\"3\"'])"},
    "metadata": {"PKG-INFO": "Metadata-Version: 2.4\nName: trainer\nVersion: 1\n"},
}


@pytest.mark.parametrize("case", MISSES_EINOPS)
def test_import_that_nothing_brings_gets_a_note(case: str) -> None:
    files = {"trainer/task.py": TASK, "trainer/model.py": "", **MISSES_EINOPS[case]}
    (found,) = check(a_source(**files))
    assert not found.must_fail
    assert found.problem == (
        "trainer/task.py:1 imports einops, which neither the runtime pytorch-2.13 nor the package's"
        " requirements names"
    )
    assert found.remedy == (
        "add einops to the package's requirements, unless another package brings it"
    )


def test_import_that_a_wheel_does_not_require_gets_a_note() -> None:
    files = {"trainer/task.py": TASK, "trainer/model.py": ""}
    metadata = "trainer-1.dist-info/METADATA"
    assert len(check(a_wheel(**files, **{metadata: "Metadata-Version: 2.1\nName: a\n"}))) == 1
    assert check(a_wheel(**files, **{metadata: REQUIRES})) == []
    assert check(a_wheel(**files, **{metadata: REQUIRES}), runtime=OWN_IMAGE) == []


def test_requirement_that_excludes_the_runtimes_framework_is_refused() -> None:
    files = {**PACKAGE, "setup.py": "setup(install_requires=['torch==1.13'])"}
    (problem,) = refused(a_source(**files))
    assert problem == (
        "the package's requirements: torch==1.13 excludes torch 2.13 of the runtime pytorch-2.13,"
        " which no package may replace"
    )
    assert refused(a_source(**files), runtime=OWN_IMAGE) == []


def test_messages_have_no_control_characters() -> None:
    """Other people read them, and a submitter chooses the names in a package."""
    files = {"setup.py": b"print 'a\x1b]0;x\x07'\n", "trainer/task.py": b"import os\n"}
    archive = opened(sdist_of(files, top="\x1b]0;x\x07/"))
    (found,) = check(archive)
    assert str(found).isprintable()
    metadata = "Metadata-Version: 2.4\nName: a\nRequires-Dist: torch<2; os_name == '\x1b'\n"
    assert check(a_source(**{"PKG-INFO": metadata, "trainer/task.py": "import os\n"})) == []


def test_more_sources_than_the_limit_are_not_judged() -> None:
    archive = a_source(**{**PACKAGE, "trainer/task.py": f"{BROKEN}# {'x' * 5000}\n"})
    assert list(check_packages("trainer.task", [archive], PYTORCH, 5000)) == []
    assert len(list(check_packages("trainer.task", [archive], PYTORCH, 6000))) == 1


@pytest.mark.parametrize("file", ["task.py", "task.pyc", "task.cpython-311-x86_64-linux-gnu.so"])
def test_module_may_be_of_any_form_that_python_runs(file: str) -> None:
    files = frozenset(("/trainer/__init__.py", "/trainer/model.py", f"/trainer/{file}"))
    assert has_module("trainer.task", files)
    assert list(check_module("trainer.task", files)) == []


def test_nearest_module_is_searched_among_names_of_modules_and_within_limits() -> None:
    """A submitter chooses the names of files, which others read in the message."""
    parent = frozenset(("/trainer/__init__.py",))
    hostile = {f"/trainer/{'ab' * 1200}{number}.py" for number in range(1000)}
    words = {"/trainer/cancel all jobs.py", "/trainer/\x1b]0;x\x07.py", "/trainer/a\nb.py"}
    used = Used()
    (finding,) = check_module(f"trainer.{'ba' * 100}", parent | hostile | words)
    assert used.since_last_call()[0] < 0.5
    assert finding.remedy == "add it to one of them, or correct pythonModule"
    (finding,) = check_module("trainer.tsak", parent | hostile | words | {"/trainer/task.py"})
    assert finding.remedy == "correct pythonModule, for example trainer.task"
