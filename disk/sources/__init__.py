"""Where adapters and models come from: a hub, an S3 service. Each lists its files and streams them from an offset.

They leave to others which files are wanted, where they go, whether they are whole, and when to try again.
"""

from disk.sources.base import Listing, OpenFile, RemoteFile, Source, SourceOptions
from disk.sources.factory import open_source

__all__ = ["Listing", "OpenFile", "RemoteFile", "Source", "SourceOptions", "open_source"]
