"""Bulk jobs: files of rows are read, stored row by row, processed at the rate that a provider allows, and exported.

It knows no database, no app and no web server.

    sources     where files come from: a folder, a bucket, an FTP server
    buckets     buckets of S3, Google Cloud and Azure: their objects, and files that are kept there
    files       where they are kept: a folder or a bucket, whole or not at all
    read        rows out of CSV, XLSX, JSON lines, images and zips of images, in bounded memory
    mapping     which column is which field, values in one spelling, previews
    duplicates  rows that repeat an earlier one
    export      rows out to CSV and XLSX, in constant memory
"""
