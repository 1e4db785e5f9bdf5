"""What a run costs on capacity that can be taken away, in money and in time, and how often it should save."""
