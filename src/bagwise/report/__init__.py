"""Reports about releases, models and ledgers."""

from bagwise.report.groups import GroupErrors, errors_by_group
from bagwise.report.questions import Answer, Report, report_on

__all__ = ["Answer", "GroupErrors", "Report", "errors_by_group", "report_on"]
