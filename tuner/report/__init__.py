"""report.md and report.html, figures, data frames and the winner's files."""
