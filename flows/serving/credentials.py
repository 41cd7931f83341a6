"""The token and the certificate of a search server, read before anything is loaded."""

import re
import secrets
import ssl
import stat
from pathlib import Path

from pipeline.errors import InputError

SHORTEST, LONGEST = 16, 1024
"""Characters of a token. A shorter one can be guessed; a longer one does not fit into a header."""
TOKEN = re.compile(r"[\x21-\x7e]*")


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_urlsafe(32)


def read_token(path: Path) -> str:
    """The only line of a file. Raises InputError if it is no token of printable ASCII without spaces."""
    try:
        with path.open("rb") as file:
            content = file.read(2 * LONGEST)
    except OSError as error:
        raise InputError(f"--token-file {path}: {str(error.strerror).lower()}") from None
    token = content.decode("latin-1").strip()
    if not TOKEN.fullmatch(token):
        raise InputError(f"--token-file {path}: must be one line of ASCII letters, digits and signs, without spaces")
    if not SHORTEST <= len(token) <= LONGEST:
        advice = "`openssl rand -hex 32` prints a good token"
        raise InputError(f"--token-file {path}: {len(token):,} characters, not {SHORTEST} to {LONGEST:,}; {advice}")
    return token


def is_readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The settings of a TLS server. Raises InputError if a file cannot be read or the two do not belong together."""
    for option, path in (("--certificate", certificate), ("--key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputError(f"{option} {path}: {str(error.strerror).lower()}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def no_password() -> str:  # OpenSSL would ask for it on the terminal, where no one may be
        raise InputError(f"--key {key}: has a password; `openssl pkey -in {key} -out FILE` writes it without one")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as error:  # also ssl.SSLError
        mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        problem = "do not belong together" if mismatch else "must be a certificate and its private key, both in PEM"
        raise InputError(f"--certificate {certificate}, --key {key}: {problem}") from None
    return context
