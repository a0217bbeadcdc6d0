"""Everything that is displayed: progress, notes to the operator, escaped text, HTML."""
