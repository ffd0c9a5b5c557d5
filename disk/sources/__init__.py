"""Sources of adapters and models: a hub, an S3 service. Each lists its files and streams them from an offset.

They leave to others which files to download, where to write them, whether they are complete, and when to retry.
"""

from disk.sources.base import Listing, OpenFile, RemoteFile, Source, SourceOptions
from disk.sources.factory import open_source

__all__ = ["Listing", "OpenFile", "RemoteFile", "Source", "SourceOptions", "open_source"]
