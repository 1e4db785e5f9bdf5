"""The family ``crash`` in reports: hundreds of disk states, summed up per save. Pure."""
