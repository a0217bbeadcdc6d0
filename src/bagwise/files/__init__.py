"""Files: written completely or not at all, and read without trusting their writer."""
