"""Makes the README's links, which are relative in the repository, absolute for the registry's page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Called by hatchling when it collects the package's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        # Headings on that page have no anchors, so even links within the README lead to the repository.
        base = metadata["urls"]["Repository"] + "/blob/main/clients/python/README.md"
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        absolute = LINK.sub(lambda link: f"]({urljoin(base, link[1])})", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute}
