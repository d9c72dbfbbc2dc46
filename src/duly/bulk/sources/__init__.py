"""Where files come from by themselves: a folder, a bucket, an FTP server.

A source lists what there is (`Found`, with a version that changes when the content does) and streams one of them.
Which versions have been taken before is for the caller to remember. A file that may still be growing is left alone:
`Steady` lets a version pass only once it has been the same for a while.

    address   one line of text that names a file of any of these
    registry  which scheme of addresses is opened how; plug-ins add their own
    folder    picks a file up by renaming it, so that one of several scanners gets it; done and failed folders
    objects   objects of a bucket below a prefix; exactly the version that was listed is read
    ftp       FTP and FTPS
"""

from __future__ import annotations

from duly.bulk.sources.found import Changed, Found, NotThere, SourceError, Steady, is_unfinished

__all__ = ["Changed", "Found", "NotThere", "SourceError", "Steady", "is_unfinished"]
