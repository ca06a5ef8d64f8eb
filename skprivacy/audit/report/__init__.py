"""Reports of audits: findings, facts, text and page.

Files, in reading order:

- ``audit_report``: `AuditReport`: fields, verdict, `facts()`, to_frame/to_dict/to_json/to_html
- ``findings``: `AttackFinding` (evidence, refutation, origin of its epsilon), `GroupExposure`,
  exposed records
- ``facts``: `ReportFacts`: every sentence and figure of a report once; caveats, sample checks
  (exchanged, copied; room for a blind baseline)
- ``plain_words``: Four questions of a data officer, answered from the facts
- ``text_report``: Facts as lines of text
- ``html_report``: Facts and figures as a page
- ``document``: `About`: data, author, command, digests, versions
"""
