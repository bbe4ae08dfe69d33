"""Makes the page of a package index from the README: relative links become text, or absolute links.

The project's public address is written nowhere in the checkout. Whoever publishes the project sets ``SILO_PROJECT_URL``
when building: links then lead there, and it becomes the project's URLs.
"""

from __future__ import annotations

import re

_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?!https?://|mailto:|#)([^)\s]+)\)")


def long_description(readme: str, version: str, url: str | None = None) -> str:
    r"""Return the README without relative links.

    >>> long_description("see [launching](docs/launching.md) and [docs/a.md](docs/a.md)", "1.0")
    'see launching (`docs/launching.md`) and `docs/a.md`\n\nPages named here lie in the source distribution.\n'
    >>> long_description("see [launching](docs/launching.md)", "1.0", "https://host.example/silo")
    'see [launching](https://host.example/silo/blob/v1.0/docs/launching.md)'
    >>> long_description("![A launch](docs/a.svg)", "1.0").splitlines()[0]
    '*A launch*'
    >>> long_description("![A launch](docs/a.svg)", "1.0", "https://host.example/silo")
    '![A launch](https://host.example/silo/raw/v1.0/docs/a.svg)'
    """

    def changed(link: re.Match[str]) -> str:
        image, label, place = link.groups()
        if url is not None:
            return f"{image}[{label}]({url}/{'raw' if image else 'blob'}/v{version}/{place})"
        if image:
            return f"*{label}*"
        return f"`{place}`" if label == place else f"{label} (`{place}`)"

    text = _LINK.sub(changed, readme)
    return text if url is not None else f"{text.rstrip()}\n\nPages named here lie in the source distribution.\n"


def project_urls(version: str, url: str | None) -> dict[str, str]:
    """Return the project's URLs, under the names that index pages know; empty without an address."""
    if url is None:
        return {}
    at = f"{url}/blob/v{version}"
    return {
        "Homepage": url,
        "Source": url,
        "Documentation": f"{at}/docs/quickstart.md",
        "Changelog": f"{at}/CHANGELOG.md",
    }


def relative_links(page: str) -> list[str]:
    """Return the targets of all relative links of a page."""
    return [link.group(3) for link in _LINK.finditer(page)]
