"""The certificates of the gs:// proxy: an authority of its own, kept over restarts, for Google's names only.

ca-key.pem, ca-cert.pem   the authority
ca.pem                    the authority and everything this machine trusts besides, as a bundle for clients
"""

import contextlib
import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GOOGLE_DOMAIN: Final = "googleapis.com"
CERTIFICATE_NAMES: Final = (GOOGLE_DOMAIN, f"*.{GOOGLE_DOMAIN}", f"*.storage.{GOOGLE_DOMAIN}")
CA_LIFETIME: Final = datetime.timedelta(days=365)
CA_RENEWED_BEFORE_END: Final = datetime.timedelta(days=30)
CLOCK_SKEW: Final = datetime.timedelta(days=1)
PEM_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
PEM_END: Final = b"-----END CERTIFICATE-----"
# Variables that name the bundle a machine uses in place of the system's.
CA_VARIABLES: Final = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT")
SYSTEM_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def prepare_certificates(state_dir: Path, now: datetime.datetime) -> ssl.SSLContext:
    """Write `ca.pem` into the state directory and return the server side's TLS context.

    The authority of an earlier start is used again; the leaf certificate is new each time (its key never leaves memory
    but for the moment `ssl` needs it as a file).
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    ca_certificate, ca_key = load_authority(state_dir, now) or create_authority(state_dir, now)
    own = pem(ca_certificate)
    write_whole(state_dir / "ca.pem", own + machine_bundle(excluding=own), 0o644)

    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        certificate_for(
            "Trainmaster local googleapis proxy",
            leaf_key.public_key(),
            ca_certificate.subject,
            now,
            CA_RENEWED_BEFORE_END,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in CERTIFICATE_NAMES]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.NamedTemporaryFile(dir=state_dir, suffix=".pem") as chain:  # made with mode 0600
        chain.write(pem_key(leaf_key) + pem(leaf))
        chain.flush()
        context.load_cert_chain(chain.name)
    return context


def load_authority(
    state_dir: Path, now: datetime.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """Return the stored authority, or None where there is none that is whole and valid for long enough."""
    try:
        certificate = x509.load_pem_x509_certificate((state_dir / "ca-cert.pem").read_bytes())
        key = serialization.load_pem_private_key((state_dir / "ca-key.pem").read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return (certificate, key) if certificate.not_valid_after_utc > now + CA_RENEWED_BEFORE_END else None


def create_authority(state_dir: Path, now: datetime.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Make a new authority, allowed to speak for `googleapis.com` only, and store it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Trainmaster local CA {x509.random_serial_number():x}"[:64])]
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
        certificate_for(None, key.public_key(), subject, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints([x509.DNSName(GOOGLE_DOMAIN)], None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_whole(state_dir / "ca-key.pem", pem_key(key), 0o600)
    write_whole(state_dir / "ca-cert.pem", pem(certificate), 0o644)
    return certificate, key


def certificate_for(
    common_name: str | None,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    """Start a certificate; without a name of its own it is the issuer's."""
    subject = issuer if common_name is None else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def machine_bundle(excluding: bytes) -> bytes:
    """Return every authority this machine trusts, each once: those of the variables, the system, and certifi."""
    paths = [os.environ.get(name, "") for name in CA_VARIABLES]
    paths += [ssl.get_default_verify_paths().cafile or "", *SYSTEM_BUNDLES, certifi.where()]
    found: dict[bytes, None] = {}
    for path in dict.fromkeys(path for path in paths if path):
        with contextlib.suppress(OSError):
            for block in Path(path).read_bytes().split(PEM_BEGIN)[1:]:
                found[PEM_BEGIN + block.partition(PEM_END)[0] + PEM_END + b"\n"] = None
    found.pop(excluding, None)
    return b"".join(found)


def pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a private key, unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Write a file that readers see either as it was or whole."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    Path(name).replace(path)
