"""The TLS certificates of the googleapis proxy.

    ca-key.pem, ca-cert.pem   a certificate authority for Google's names only, kept over restarts
    ca.pem                    bundle for clients: this authority, and all others that this machine
                              trusts

The library trustme issues the server's certificate. It cannot limit an authority to one domain or
to one year, so the authority's own certificate is made here: a stolen key must not be able to sign
for other sites.
"""

import contextlib
import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

import certifi
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

GOOGLE_DOMAIN: Final = "googleapis.com"
CERTIFICATE_NAMES: Final = (GOOGLE_DOMAIN, f"*.{GOOGLE_DOMAIN}", f"*.storage.{GOOGLE_DOMAIN}")
CA_LIFETIME: Final = datetime.timedelta(days=365)
CA_RENEWAL_MARGIN: Final = datetime.timedelta(days=30)
"""An authority that expires within this time is replaced at the next start; also the server
certificate's lifetime.
"""
CLOCK_SKEW: Final = datetime.timedelta(days=1)
PEM_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
PEM_END: Final = b"-----END CERTIFICATE-----"
CA_VARIABLES: Final = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT")
"""Variables with the path of a bundle that replaces the system's."""
SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


def prepare_certificates(state_dir: Path, now: datetime.datetime) -> ssl.SSLContext:
    """Write `ca.pem` into the state directory and return the server's TLS context.

    The authority of an earlier start is used again. The server's certificate is new at each start.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    authority = load_authority(state_dir, now) or create_authority(state_dir, now)
    own = authority.cert_pem.bytes()
    replace_file(state_dir / "ca.pem", own + machine_bundle(excluding=own), mode=0o644)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    certificate = authority.issue_cert(
        *CERTIFICATE_NAMES, not_before=now - CLOCK_SKEW, not_after=now + CA_RENEWAL_MARGIN
    )
    certificate.configure_cert(context)
    return context


def load_authority(state_dir: Path, now: datetime.datetime) -> trustme.CA | None:
    """Return the stored authority, or None if it is missing, damaged, or expires soon."""
    try:
        certificate_pem = (state_dir / "ca-cert.pem").read_bytes()
        key_pem = (state_dir / "ca-key.pem").read_bytes()
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (FileNotFoundError, ValueError):
        return None
    is_pair = key.public_key() == certificate.public_key()
    ends_soon = certificate.not_valid_after_utc <= now + CA_RENEWAL_MARGIN
    if not is_pair or ends_soon:
        return None
    return trustme.CA.from_pem(certificate_pem, key_pem)


def create_authority(state_dir: Path, now: datetime.datetime) -> trustme.CA:
    """Create and store an authority that can sign for `googleapis.com` only."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Trainmaster local CA {serial:x}"[:64])]
    )
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints([x509.DNSName(GOOGLE_DOMAIN)], None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(state_dir / "ca-key.pem", key_pem, mode=0o600)
    replace_file(state_dir / "ca-cert.pem", certificate_pem, mode=0o644)
    return trustme.CA.from_pem(certificate_pem, key_pem)


def machine_bundle(excluding: bytes) -> bytes:
    """Return every authority that this machine trusts, each once: the variables', the system's, and
    certifi's.
    """
    paths = [os.environ.get(name, "") for name in CA_VARIABLES]
    paths += [ssl.get_default_verify_paths().cafile or "", *SYSTEM_BUNDLES, certifi.where()]
    authorities: dict[bytes, None] = {}
    for path in dict.fromkeys(path for path in paths if path):
        with contextlib.suppress(OSError):
            for block in Path(path).read_bytes().split(PEM_BEGIN)[1:]:
                authorities[PEM_BEGIN + block.partition(PEM_END)[0] + PEM_END + b"\n"] = None
    authorities.pop(excluding, None)
    return b"".join(authorities)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file in one step, so that a reader sees the old or the new contents."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    Path(name).replace(path)
