"""Which pages are generated, and what each is made of.

Owns the list. Must not know how a page is laid out, except that settings are two tables.
"""

from pathlib import Path

from ringlog.broker.config import settings_page
from ringlog.broker.topic_settings import settings_table
from ringlog.tools.pages.client_page import client_page
from ringlog.tools.pages.commands_page import commands_page
from ringlog.tools.pages.module_map import module_map
from ringlog.tools.pages.protocol_page import protocol_page


def pages(root: Path) -> dict[str, str]:
    """Text of each generated page by its path below `root`, the clone."""
    return {
        "docs/client.md": client_page(),
        "docs/commands.md": commands_page(),
        "docs/modules.md": module_map(root),
        "docs/protocol.md": protocol_page(),
        "docs/settings.md": f"{settings_page()}\n## Topic settings\n\n{settings_table()}",
    }
