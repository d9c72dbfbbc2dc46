"""Bulk jobs: files of rows come in, are kept row by row, processed at the pace that the other side allows, and go out.

It knows no database, no app and no web server.

    sources     where files come from: a folder, a bucket, an FTP server
    buckets     how buckets of S3, Google Cloud and Azure are opened
    files       where they are kept: a folder or a bucket, whole or not at all
    read        rows out of CSV, XLSX, JSON lines, images and zips of images, in bounded memory
    mapping     which column is which field, values in one spelling, previews
    duplicates  rows that repeat an earlier one
    export      rows out to CSV and XLSX, in constant memory
"""
