"""What people see: progress, notes to the operator, escaped text, HTML."""
