"""Reports of audits: findings, facts, text and page.

Files, in reading order:

- ``audit_report``: AuditReport: fields, verdict, tables, JSON and page
- ``findings``: AttackFinding (evidence against the claim), GroupExposure, exposed or copied records
- ``facts``: facts of a report, in sections
- ``caveats``: caveats of a report
- ``document``: data, author, command, digests and versions of a report
- ``plain_words``: summary for decision makers
- ``html_report``: the report as a page, with its figures
"""
