"""What people read: tables, figures, report.md, compare-report, and the winner's files."""
