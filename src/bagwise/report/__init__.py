"""What a custodian is asked about a release: answered as far as its files can."""

from bagwise.report.groups import GroupErrors, errors_by_group
from bagwise.report.questions import Answer, Report, report_on

__all__ = ["Answer", "GroupErrors", "Report", "errors_by_group", "report_on"]
