"""Network traffic of a machine, in bytes, from /proc/net/dev and the cards in /sys/class/net."""

from __future__ import annotations

from pathlib import Path

from trainmaster.agent.utilization.network import Traffic, read_traffic

HEAD = "Inter-|   Receive |  Transmit\n face |bytes packets errs|bytes packets errs\n"


def a_line(name: str, received: int, sent: int) -> str:
    """Return the line of an interface. Of its 16 numbers, the first and the ninth are bytes."""
    return f"{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"


def write(root: Path, *lines: str, cards: tuple[str, ...] = ()) -> None:
    """Write the files of a machine. `cards`: interfaces that have a device, so are not virtual."""
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/dev").write_text(HEAD + "".join(lines))
    for card in cards:
        (root / "sys/class/net" / card / "device").mkdir(parents=True)


def test_bridge_of_a_container_engine_does_not_count_twice(tmp_path: Path) -> None:
    lines = (
        a_line("    lo", received=7, sent=7),
        a_line("  ens4", received=1000, sent=200),
        a_line("  ens5", received=30, sent=4),
        a_line("docker0", received=900, sent=100),
    )
    write(tmp_path, *lines, cards=("ens4", "ens5"))
    assert read_traffic(tmp_path) == Traffic(received=1030, sent=204)


def test_container_counts_its_virtual_interface(tmp_path: Path) -> None:
    write(tmp_path, a_line("    lo", received=7, sent=7), a_line("  eth0", received=1000, sent=200))
    assert read_traffic(tmp_path) == Traffic(received=1000, sent=200)


def test_this_machine_can_be_read() -> None:
    assert read_traffic().received >= 0
