"""Measurements and the report: every figure and number here is one command, written down with the machine it ran on."""
