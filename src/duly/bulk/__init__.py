"""Bulk jobs: files of rows come in, are kept row by row, processed at the pace that the other side allows, and go out.

What is here so far stands on its own: it knows no database, no app and no web server.

    sources   where files come from: a folder, a bucket, an FTP server
    files     where they are kept: a folder or a bucket, whole or not at all
    read      rows out of CSV, XLSX, JSON lines, images and zips of images, in bounded memory
    mapping   which column is which field, values in one spelling, previews, duplicates
    export    rows out to CSV and XLSX, in constant memory
    adapt     how much at a time, and how fast: controllers that are pure values
"""
