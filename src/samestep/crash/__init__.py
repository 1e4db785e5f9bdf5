"""Recording what a save does to files, and every disk state that an interruption of it can leave."""
