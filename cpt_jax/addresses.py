"""Addresses of what lies elsewhere, fit to be written down and shown."""

import re

# To the end of what may be an address, but for an option that follows it: NAME,split=train
_REST = r"(?:(?!,[a-z_]+=)[^\s'\"<>])*"
# A user and password: before the last @ of the host's part. A password with a slash in it is no
# valid URL, but people type them: up to the last @ of all, unless what follows the colon is a port.
_USER = re.compile(r"(?<=://)(?:[^\s/?#]*|[^\s/?#:'\"<>]+:(?!\d*(?:[/?#]|$))[^\s'\"<>]*)@")
# On the web all that follows the path; elsewhere a query, and no ? of a glob pattern.
_QUERY = re.compile(rf"(https?://[^\s'\"<>?#]*)[?#]{_REST}|\?[\w.~%-]+={_REST}", re.IGNORECASE)


def without_keys(text: str) -> str:
    """A text whose URLs have neither user nor password nor, where signed ones carry a key, a query.

    They are found anywhere in it: 'simplecache::https://host/a?key', '--flag=https://a:b@host'.
    """
    if "://" not in text:
        return text
    return _QUERY.sub(lambda found: found[1] or "", _USER.sub("", text))
