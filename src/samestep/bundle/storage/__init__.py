"""Places that keep a store's bytes."""
