"""The drill: control runs, scenarios, comparison, diagnosis."""
