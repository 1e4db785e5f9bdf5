"""The command line: one module per verb, each loaded only when its verb is used."""
