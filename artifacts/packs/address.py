"""The parts of an fsspec address that no message may show: a user's name and password, and a signature."""

import re

USER = re.compile(r"(?<=//)[^/]*@")
"""A user's name and password, also in an address that a message quotes."""
QUERY = re.compile(r"https?://[^?]*(\?.*)", re.DOTALL)
"""A web address; its end may be a signature."""
SHORTEST_SECRET = 4
"""Characters. A shorter one would remove letters of words."""


def user_in(address: str) -> str:
    """Returns `USER:PASSWORD@` of an address; empty if it has none."""
    protocol, _, rest = address.partition("://")
    host = rest.partition("/")[0]
    is_cut = "@" not in host and not host.startswith("[") and re.search(r":\D", host)  # by a slash in the password
    part = rest if is_cut else host
    return "" if protocol in ("file", "local") else part[: part.rfind("@") + 1]


def without_secrets(text: str, address: str) -> str:
    """Returns a text about an address, or the address itself, without the address's secrets."""
    user, query = user_in(address), QUERY.match(address)
    secrets = [user, user.removesuffix("@"), user.partition(":")[2].removesuffix("@"), query[1] if query else ""]
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "")
    return USER.sub("", text)
