"""From a file to the rows of a job, and back: where `bulk`, which knows no database, meets the verbs.

types     which task takes the rows of which kind of file
intake    files come in: kept first, then made a job of; previews
sources   files that lie elsewhere, by their addresses
ingest    the file of a job is read row by row, resumably, in batches that suit the database
exports   rows go out: the whole job, or what has to be mended
mending   imports corrected rows
tasks     the tasks of our own that do the durable part
"""
