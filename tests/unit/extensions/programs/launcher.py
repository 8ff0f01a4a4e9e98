"""`colossalai run` gets no signal to save; the program that it starts does."""

from trainmaster.agent.program.launchers import LAUNCHERS, is_launcher_word

assert is_launcher_word("/opt/venv/bin/colossalai")
assert is_launcher_word("colossalai.cli")
assert not is_launcher_word("train.py")
assert "colossalai" in {launcher.package for launcher in LAUNCHERS}
