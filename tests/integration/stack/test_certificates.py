"""The certificate authority of the googleapis proxy: its limits, and when it is replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from trainmaster_emulators.process import certificates

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def authority(state_dir: Path) -> bytes:
    return (state_dir / "ca-cert.pem").read_bytes()


def test_authority_signs_only_for_googleapis_and_no_other_authority(tmp_path: Path) -> None:
    certificates.prepare_certificates(tmp_path, NOW)
    extensions = x509.load_pem_x509_certificate(authority(tmp_path)).extensions
    names = extensions.get_extension_for_class(x509.NameConstraints)
    assert (names.critical, names.value.permitted_subtrees) == (
        True,
        [x509.DNSName("googleapis.com")],
    )
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


@pytest.mark.parametrize(("days_later", "is_kept"), [(0, True), (334, True), (336, False)])
def test_authority_is_kept_until_30_days_before_its_end(
    tmp_path: Path, days_later: int, is_kept: bool
) -> None:
    """It is valid for 365 days."""
    certificates.prepare_certificates(tmp_path, NOW)
    first = authority(tmp_path)
    certificates.prepare_certificates(tmp_path, NOW + timedelta(days=days_later))
    assert (authority(tmp_path) == first) is is_kept


@pytest.mark.parametrize("file", ["ca-key.pem", "ca-cert.pem"])
def test_damaged_authority_is_replaced(tmp_path: Path, file: str) -> None:
    certificates.prepare_certificates(tmp_path, NOW)
    first = authority(tmp_path)
    (tmp_path / file).write_text("damaged")
    certificates.prepare_certificates(tmp_path, NOW)
    assert authority(tmp_path) != first
    assert certificates.load_authority(tmp_path, NOW) is not None


def test_key_of_another_authority_is_not_used(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        certificates.prepare_certificates(tmp_path / folder, NOW)
    (tmp_path / "one" / "ca-key.pem").write_bytes((tmp_path / "other" / "ca-key.pem").read_bytes())
    assert certificates.load_authority(tmp_path / "one", NOW) is None
